"""An agent: commands, reports and heartbeats, restarts."""

import threading

from fpga_pool.core.lattice.topology import Topology
from fpga_pool.drivers import host_meter
from fpga_pool.model.agent.coalescing import coalesced
from fpga_pool.model.agent.objects import Phase
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.agents import JobFinished, ObservedJob
from fpga_pool.model.objects.links import CardLinks
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.values import changed
from fpga_pool.services.agent import service
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.shell import AgentShell
from fpga_pool.services.agent.slot_worker import SlotWorker

SLOT, OTHER = "h0/sim0/slot0", "h0/sim0/slot1"


def test_a_heartbeat_tells_the_whole_host(bench, until):
    bench.assign("j")
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])
    until(lambda: bench.agent.heartbeat().unreported == 0)
    heartbeat = bench.agent.heartbeat()
    assert (heartbeat.host, heartbeat.egress_bps, heartbeat.data_address) == ("h0", 1e10, "127.0.0.1")
    assert heartbeat.data_port > 0
    assert heartbeat.jobs == (ObservedJob(job="j", attempt=1, slot=SLOT),)
    slots = {slot.slot: slot for slot in heartbeat.slots}
    assert list(slots) == [*(f"h0/sim0/slot{i}" for i in range(3)), "h0/cpu/worker0"]
    assert [slot.kind for slot in slots.values()] == ["small", "small", "large", "cpu"]
    first, second = slots[SLOT], slots[OTHER]
    assert (first.state, first.function, first.job) == (SlotState.READY, "sha256", "")
    assert (first.sequence, first.epoch) == (1, 1)
    assert (second.state, second.sequence, second.epoch) == (SlotState.EMPTY, 0, 0)


def test_a_heartbeat_tells_how_slots_are_linked(bench, new_driver):
    assert {slot.links for slot in bench.agent.heartbeat().slots} == {""}
    links = CardLinks(enclosure="box", topology=Topology.RING, cards=2, position=1, slots=Topology.LINE)
    bench.stop()
    bench._new_driver = lambda: new_driver(links={"sim0": links})
    bench.start()
    told = [slot.links for slot in bench.agent.heartbeat().slots]
    assert told == [*(f"box ring 2 1 line 3 {number}" for number in range(3)), ""]


def test_counters_are_in_the_first_heartbeat_that_is_sent_when_they_are_due_and_in_no_other(
    new_bench, monkeypatch, until
):
    bench = new_bench(heartbeat_s=100.0)  # no regular heartbeat takes the counters that are measured below
    until(lambda: bench.scheduler.heartbeats)
    bench.assign("j")
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])
    monkeypatch.setattr(host_meter, "INTERVAL_S", 0.0)
    bench.agent.heartbeats.send()
    found = bench.scheduler.heartbeats[-1].counters
    monkeypatch.undo()
    bench.agent.heartbeats.send()
    assert bench.scheduler.heartbeats[-1].counters is None
    assert found == bench.agent.meter.last
    assert found.memory_bytes > found.used_bytes > 0
    # The CPU worker transfers nothing by DMA.
    (card,) = found.cards
    assert card.card == "sim0"
    # 20 bytes of input, and a hexadecimal digest with a newline.
    assert bench.worker.moved_bytes == 20 + 65
    assert card.dma_bps > 0


def test_an_agent_speaks_for_its_host_until_another_does(new_bench, until):
    bench = new_bench(heartbeat_s=0.02)
    until(lambda: bench.speaks == [True])
    bench.scheduler.taken = True
    until(lambda: bench.speaks == [True, False])
    bench.scheduler.taken = False
    until(lambda: bench.speaks == [True, False, True])


def test_an_agent_that_is_enrolled_at_its_first_message_warns_of_nothing(new_bench, until, caplog):
    caplog.set_level("INFO")
    bench = new_bench(heartbeat_s=0.02)
    until(lambda: bench.speaks == [True])
    bench.scheduler.enrolled = False
    until(lambda: bench.speaks == [True, False, True])
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == service.__name__]
    assert ("INFO", "host h0 is enrolled") in said
    assert [message for level, message in said if level == "WARNING"] == []


def test_a_heartbeat_tells_the_job_that_computes_and_its_execution(new_bench, until):
    bench = new_bench(hang_grace_s=60.0)
    bench.assign("j", function="wordcount")
    until(lambda: bench.state() == "BUSY")
    (busy,) = [slot for slot in bench.agent.heartbeat().slots if slot.slot == SLOT]
    assert (busy.state, busy.function, busy.job) == (SlotState.BUSY, "wordcount", "j")


def test_heartbeats_say_how_many_reports_wait_and_these_come_in_order_when_the_scheduler_is_back(bench, until):
    until(lambda: bench.scheduler.heartbeats)
    bench.scheduler.away = True
    bench.assign("j")
    # LOADING, READY, BUSY and READY of the slot; InputStaged, JobStarted and JobFinished of the job.
    until(lambda: bench.agent.heartbeat().unreported == 7)
    bench.scheduler.away = False
    until(lambda: bench.told("j") == ["InputStaged", "JobStarted", "JobFinished"])
    until(lambda: bench.scheduler.heartbeats[-1].unreported == 0)


def test_what_the_end_of_a_job_says_as_well_is_not_told_before_it_where_both_wait(bench, until, monkeypatch):
    monkeypatch.setattr(service, "coalesced", coalesced)
    until(lambda: bench.scheduler.heartbeats)
    bench.scheduler.away = True
    bench.assign("j")
    until(lambda: bench.agent.heartbeat().unreported == 7)
    bench.scheduler.away = False
    until(lambda: bench.told("j") == ["JobFinished"])
    until(lambda: bench.scheduler.heartbeats[-1].unreported == 0)
    told = next(report for report in bench.scheduler.reports if isinstance(report, JobFinished))
    assert told.staged_at <= told.started_at <= told.at


def test_no_report_overtakes_a_heartbeat_that_says_all_is_reported(bench, until, monkeypatch):
    """A heartbeat is on its way while a job progresses. It arrives before any report of the job."""
    reported_meanwhile = []
    heard = bench.scheduler.heartbeat

    def slow(heartbeat):
        if heartbeat.unreported == 0 and not reported_meanwhile:
            before = len(bench.scheduler.reports)
            bench.execute(bench.commands.assign("j"))
            until(lambda: bench.state() == "READY")
            reported_meanwhile.append(len(bench.scheduler.reports) - before)
        return heard(heartbeat)

    monkeypatch.setattr(bench.scheduler, "heartbeat", slow)
    until(lambda: bench.slot_states() == ["LOADING", "READY"])
    assert reported_meanwhile == [0]


def test_reports_that_the_scheduler_cannot_read_do_not_hold_up_the_others(bench, until, monkeypatch):
    report, refused = bench.scheduler.report, []

    def refuse_first(host, agent_id, numbered):
        if not refused:
            refused.extend(numbered)
            raise InvalidInput("report: unknown field")
        report(host, agent_id, numbered)

    monkeypatch.setattr(bench.scheduler, "report", refuse_first)
    bench.assign("j")
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])
    assert refused


def test_commands_for_another_host_or_an_unknown_slot_are_refused_by_name(bench):
    elsewhere = changed(bench.commands.assign("j"), host="h9")
    nowhere = bench.commands.assign("j", slot="h0/sim0/slot9")
    outcomes = bench.agent.execute("s", 1, [elsewhere, nowhere, bench.commands.assign("j")])
    assert [(outcome.outcome, outcome.reason) for outcome in outcomes] == [
        ("refused", "no slot h0/sim0/slot0 on host h0"),
        ("refused", "no slot h0/sim0/slot9 on host h0"),
        ("accepted", ""),
    ]


def test_a_stopped_agent_has_told_what_its_last_jobs_left_to_tell(new_bench, until):
    bench = new_bench(drain_timeout_s=10.0, heartbeat_s=100.0)
    bench.assign("j")
    until(lambda: bench.told("j"))
    bench.stop()
    journal = Journal(bench.settings.state_dir / "journal.sqlite")
    assert journal.unreported() == 0
    journal.close()
    bench.start()


def test_a_restarted_agent_computes_what_was_computing_and_refuses_what_is_late(new_bench, until):
    bench = new_bench(hang_grace_s=60.0, drain_timeout_s=0.05)
    late = bench.commands.assign("late")
    repeated = bench.commands.assign("j")
    bench.execute(repeated)
    bench.stop()
    bench.start()
    assert bench.execute(repeated, late) == ["repeated", "refused"]
    bench.jobs.files.input_path("j").write_bytes(b"what the client sent")
    bench.jobs.staged("j")
    until(lambda: bench.told("j") == ["InputStaged", "JobStarted", "JobFinished"])


def test_ends_are_recorded_by_no_slot_from_the_first_one_after_a_start_on(new_bench, until, monkeypatch):
    bench = new_bench(hang_grace_s=60.0, drain_timeout_s=0.05)
    bench.assign("stopped", function="wordcount")
    bench.assign("j", order=1)
    until(lambda: bench.state() == "BUSY")
    bench.stop()
    start, record_ends, recorded_by = SlotWorker.start, AgentShell.record_ends, []

    def start_slowly(worker):
        start(worker)
        if worker.name == SLOT:
            until(lambda: bench.jobs.get("j").phase in (Phase.ENDED, Phase.HELD))

    def record(shell):
        recorded_by.append(threading.current_thread().name)
        record_ends(shell)

    monkeypatch.setattr(SlotWorker, "start", start_slowly)
    monkeypatch.setattr(AgentShell, "record_ends", record)
    bench.start()
    until(lambda: bench.jobs.get("j").phase is Phase.HELD)
    assert set(recorded_by) == {"record-h0"}


def test_a_result_that_came_while_the_clock_was_far_behind_does_not_expire_when_that_is_corrected(new_bench, until):
    bench = new_bench(retention_s=600.0, heartbeat_s=0.1)
    bench.scheduler.away = True
    bench.assign("j")
    until(lambda: bench.jobs.get("j").phase is Phase.HELD)
    bench.scheduler.ahead_s, heard = 3600.0, len(bench.scheduler.heartbeats)
    bench.scheduler.away = False
    until(lambda: len(bench.scheduler.heartbeats) > heard + 2)
    assert bench.jobs.get("j").phase is Phase.HELD


def test_results_expire_after_the_retention_time(new_bench, until):
    bench = new_bench(retention_s=0.1)
    bench.assign("j")
    until(lambda: bench.told("j")[-1:] == ["ResultExpired"])
    until(lambda: bench.files() == [])
