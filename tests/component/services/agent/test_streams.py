"""The permissions of the data port, according to the jobs that the agent holds."""

import pytest

from fpga_pool.model.agent.objects import Phase
from fpga_pool.model.exceptions import InvalidInput, TransferRefused
from fpga_pool.model.messages.agents import ObservedFlow
from fpga_pool.model.values import changed
from fpga_pool.services.agent.job_files import FlowMeter
from fpga_pool.services.agent.streams import Streams
from fpga_pool.transfer.handler import SmallInput
from fpga_pool.transfer.tokens import TransferGrant

GRANT = TransferGrant(
    job="j", attempt=1, project_id="p", host="h0", purpose="send", input_bytes=20, token_id="t", deadline_s=1e12
)


@pytest.fixture
def streams(jobs):
    return Streams(jobs)


def refusal(call, *arguments):
    with pytest.raises(TransferRefused) as refused:
        call(*arguments)
    return refused.value.reason


def test_the_input_of_a_job_that_waits_for_it_is_admitted(streams, jobs, commands):
    jobs.order(commands.assign("j"))
    assert streams.admit(GRANT).spool_path == jobs.files.input_path("j")


def test_a_stream_that_was_seen_is_reported_with_its_source_for_the_attempt_it_is_of(
    streams, jobs, commands, journal, reported
):
    jobs.order(commands.assign("j"))
    streams.seen(changed(GRANT, source="2001:db8::1:5000"))
    assert reported() == [("FlowSeen", "j", 1)]
    ((_, report),) = journal.reports(10)
    assert (report.source_address, report.source_port) == ("2001:db8::1", 5000)
    assert refusal(streams.seen, changed(GRANT, attempt=2, source="192.0.2.1:5000")) == "wrong_attempt"
    assert refusal(streams.seen, changed(GRANT, project_id="q", source="192.0.2.1:5000")) == "unknown_job"
    assert len(reported()) == 1


def test_a_stream_that_is_faster_than_the_command_hears_of_it_and_one_of_a_later_attempt_goes_on_waiting(
    streams, jobs, commands
):
    now, later = streams.announcement(GRANT), streams.announcement(changed(GRANT, attempt=2))
    assert not now.done()
    jobs.order(commands.assign("j"))
    assert now.result(0) is None
    assert not later.done()
    assert streams.announcement(GRANT) is None
    assert streams.admit(GRANT).spool_path == jobs.files.input_path("j")


def test_each_stream_hears_once_of_its_job_whatever_other_commands_are_executed_meanwhile(streams, jobs, commands):
    first, second = streams.announcement(GRANT), streams.announcement(GRANT)
    first.add_done_callback(lambda _: jobs.announcements.changed([]))  # like another thread that executes commands
    jobs.order(commands.assign("j"))
    assert (first.result(0), second.result(0)) == (None, None)
    assert jobs.announcements._waiting == {}


def test_a_stream_that_gave_up_waiting_leaves_nothing_behind(streams, jobs):
    streams.announcement(GRANT).cancel()
    assert jobs.announcements._waiting == {}


def test_tokens_of_a_released_job_are_refused_at_once_and_those_of_its_next_attempt_wait(streams, jobs, commands):
    jobs.order(commands.assign("j"))
    jobs.order(commands.release("j"))
    assert refusal(streams.announcement, GRANT) == "unknown_job"
    assert not streams.announcement(changed(GRANT, attempt=2)).done()


@pytest.mark.parametrize("name", ["../../victim.txt", "..", "", "a/b", "j.part"])
def test_no_name_of_a_job_leads_out_of_the_directory_of_inputs(jobs, name):
    for path in (jobs.files.input_path, jobs.files.partial_path, jobs.files.result_path):
        with pytest.raises(InvalidInput, match="expected letters, digits and hyphens"):
            path(name)
    with pytest.raises(InvalidInput):
        jobs.files.delete(name)


def test_a_job_that_is_not_held_or_of_another_project_is_unknown(streams, jobs, commands):
    assert refusal(streams.admit, GRANT) == "unknown_job"
    jobs.order(commands.assign("j", project_id="q"))
    assert refusal(streams.admit, GRANT) == "unknown_job"


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_token_of_another_attempt_is_refused(streams, jobs, commands, attempt):
    jobs.order(commands.assign("j", attempt=2))
    grant = changed(GRANT, attempt=attempt)
    for call in (streams.admit, streams.result):
        assert refusal(call, grant) == "wrong_attempt"
    assert refusal(streams.progress, grant, 10) == "wrong_attempt"
    assert refusal(streams.staged, grant, "ab", 20) == "wrong_attempt"
    assert jobs.get("j").phase is Phase.WAITING


def test_an_input_that_is_complete_is_not_sent_again(streams, jobs, commands):
    jobs.order(commands.assign("j"))
    jobs.files.input_path("j").write_bytes(b"x")
    streams.staged(GRANT, "ab", 20)
    assert jobs.get("j").phase is Phase.STAGED
    assert refusal(streams.admit, GRANT) == "already_staged"


def test_a_stream_whose_job_is_withdrawn_is_stopped(streams, jobs, commands):
    jobs.order(commands.assign("j"))
    streams.progress(GRANT, 10)
    jobs.order(commands.release("j"))
    assert refusal(streams.progress, GRANT, 11) == "unknown_job"
    assert refusal(streams.staged, GRANT, "ab", 20) == "unknown_job"


def test_the_stream_of_an_older_attempt_is_stopped_when_the_job_comes_back(streams, jobs, commands):
    jobs.order(commands.assign("j"))
    streams.progress(GRANT, 10)
    jobs.order(commands.assign("j", attempt=2))
    assert refusal(streams.progress, GRANT, 11) == "wrong_attempt"
    assert streams.admit(changed(GRANT, attempt=2)).spool_path == jobs.files.input_path("j")


def test_the_end_of_a_job_is_told_and_its_delivery_noted(streams, jobs, commands):
    jobs.order(commands.assign("j"))
    jobs.files.input_path("j").write_bytes(b"x")
    streams.staged(GRANT, "ab", 20)
    end = streams.result(GRANT)
    running = jobs.started()
    jobs.failed(running, "fpga_pool.slot_fault", "smoke", retryable=True)
    assert (end.result(0).code, end.result(0).message) == ("fpga_pool.slot_fault", "smoke")
    streams.delivered([GRANT])
    assert jobs.get("j").phase is Phase.FAILED


def test_small_inputs_are_taken_together_and_those_that_are_here_already_too(streams, jobs, commands):
    jobs.order(commands.assign("j"))
    jobs.order(commands.assign("k", attempt=2))
    both = [SmallInput(GRANT, b"x"), SmallInput(changed(GRANT, job="k"), b"y")]
    none, refused = streams.stage_small(both)
    assert (none, refused.reason) == (None, "wrong_attempt")
    assert (jobs.get("j").phase, jobs.get("k").phase) == (Phase.STAGED, Phase.WAITING)
    assert streams.stage_small(both[:1]) == [None]


def test_a_small_input_of_no_known_job_is_refused(streams):
    (refused,) = streams.stage_small([SmallInput(GRANT, b"x")])
    assert refused.reason == "unknown_job"


def test_a_flow_has_the_rate_of_what_came_since_the_heartbeat_before(streams, jobs, commands):
    """1,000 bytes in 0.5 s are 16 kbit/s, 3,000 in 2 s are 12 kbit/s. 0.01 s is too short to count. Then it stalls."""
    now = [0.0]
    jobs.meter = FlowMeter(lambda: now[0])
    jobs.order(commands.assign("j"))

    def measured(at_s, received_bytes):
        now[0] = at_s
        streams.progress(GRANT, received_bytes)
        return jobs.flows()

    assert measured(10.0, 500) == ()
    assert measured(10.5, 1500) == (ObservedFlow("j", 1, 16_000.0),)
    assert measured(12.5, 4500) == (ObservedFlow("j", 1, 12_000.0),) == jobs.meter.rates()
    assert measured(12.51, 4510) == (ObservedFlow("j", 1, 12_000.0),)
    now[0] = 14.5
    assert jobs.flows() == (ObservedFlow("j", 1, 40.0),)
    now[0] = 16.5
    assert jobs.flows() == (ObservedFlow("j", 1, 0.0),)


def test_a_complete_input_is_reported_with_the_begin_of_its_first_stream(streams, jobs, commands, journal, clock):
    """The first bytes come at 10 s. The stream breaks, and the next one has delivered the rest at 13.5 s."""
    now = [10.0]
    jobs.meter = FlowMeter(lambda: now[0])
    jobs.order(commands.assign("j"))
    for now[0], received_bytes in ((10.0, 5), (12.0, 1), (13.0, 20)):
        streams.progress(GRANT, received_bytes)
    jobs.files.input_path("j").write_bytes(b"x" * 20)
    now[0] = 13.5
    streams.staged(GRANT, "0" * 64, 20)
    ((_, report),) = journal.reports(10)
    assert report.at - report.transfer_began_at == pytest.approx(3.5)


def test_an_input_without_a_byte_and_a_small_one_that_came_at_once_have_no_begin(streams, jobs, commands, journal):
    for name in "jk":
        jobs.order(commands.assign(name))
    jobs.files.input_path("j").write_bytes(b"")
    streams.staged(GRANT, "0" * 64, 0)
    streams.stage_small([SmallInput(changed(GRANT, job="k"), b"y")])
    assert [(report.job, report.transfer_began_at) for _, report in journal.reports(10)] == [("j", None), ("k", None)]


def test_an_input_that_begins_again_is_measured_from_there_and_forgotten_when_it_is_complete(streams, jobs, commands):
    """The first 100 bytes of the second stream came before the measured time: 400 bytes in 1 s are 3.2 kbit/s."""
    now = [0.0]
    jobs.meter = FlowMeter(lambda: now[0])
    jobs.order(commands.assign("j"))
    streams.progress(GRANT, 5000)
    now[0] = 1.0
    streams.progress(GRANT, 100)
    now[0] = 2.0
    streams.progress(GRANT, 500)
    assert jobs.flows() == (ObservedFlow("j", 1, 3200.0),)
    jobs.files.input_path("j").write_bytes(b"x" * 20)
    streams.staged(GRANT, "0" * 64, 20)
    assert jobs.flows() == jobs.meter.rates() == ()
