import logging
import math
import socket
import time
import uuid
from dataclasses import fields
from types import SimpleNamespace

import pytest
from oslo_messaging import MessagingTimeout

from fpga_pool.client import Client, JobSpec, Subtask
from fpga_pool.model import exceptions
from fpga_pool.model.messages.requests import TicketRequest
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import BatchState, JobState, SlotState
from fpga_pool.model.objects.tasks import TaskShape
from fpga_pool.rpc.calls.hardware import EVERYTHING


def job(**changes):
    values = {
        "uuid": str(uuid.uuid4()), "name": "a", "function": "sha256", "requester": "node-1", "input_bytes": 7,
    }  # fmt: skip
    return JobRequest(**{**values, **changes})


HIDDEN_OF_SLOTS = {"generation", "sequence", "lease_epoch", "shard", "history"}
HIDDEN_OF_HOSTS = {
    "agent_id", "availability_zone", "beat", "egress_driver", "generation", "history", "node", "reported", "shard",
}  # fmt: skip


def shown(things, but_for=frozenset()):
    """Return the fields of each that have a value."""
    names = [[f.name for f in fields(thing) if f.name not in but_for and hasattr(thing, f.name)] for thing in things]
    return [{name: getattr(thing, name) for name in of_it} for thing, of_it in zip(things, names, strict=True)]


@pytest.fixture
def no_pauses(monkeypatch):
    """The list of pauses that would have been made, in seconds."""
    pauses_s = []
    monkeypatch.setattr(
        "fpga_pool.client.session.time", SimpleNamespace(sleep=pauses_s.append, monotonic=time.monotonic)
    )
    return pauses_s


def test_objects_arrive_as_they_are_in_the_pool(client, pool):
    batch = client.create_batch([job()], name="first")
    assert client.batch(batch.uuid).state is BatchState.PENDING
    assert shown(client.slots()) == shown(pool.tx.slots(), but_for=HIDDEN_OF_SLOTS)
    assert shown(client.hosts()) == shown(pool.tx.hosts(), but_for=HIDDEN_OF_HOSTS)  # an infinite bandwidth included
    assert client.functions() == pool.functions()
    assert client.calibration("sha256") == pool.calibration("sha256")
    (found,) = client.jobs(batch.uuid)
    stored = pool.tx.batch_jobs(batch.uuid)[0]
    assert (found.uuid, found.attempt, found.dispatched_at) == (stored.uuid, 1, pytest.approx(stored.dispatched_at))


@pytest.mark.parametrize("name", sorted(HIDDEN_OF_HOSTS))
def test_what_the_api_does_not_show_has_no_value(client, name):
    host, other = client.hosts()
    with pytest.raises(AttributeError, match=f"{name} of this host is not in the API's response"):
        getattr(host, name)
    assert f" {name}=" not in repr(host)
    assert client.hosts() == [host, other]
    assert {host, *client.hosts()} == {host, other}


def test_the_endpoint_without_a_login_is_that_of_the_environment_as_for_the_command(monkeypatch):
    monkeypatch.setenv("FPGA_POOL_ENDPOINT", "http://127.0.0.1:1234")
    with Client() as client, Client("http://127.0.0.1:5678") as other:
        assert (client.endpoint, other.endpoint) == ("http://127.0.0.1:1234", "http://127.0.0.1:5678")
    monkeypatch.setenv("FPGA_POOL_ENDPOINT", "")
    with Client() as client:
        assert client.endpoint == "http://127.0.0.1:9511"


def test_stories_are_told_of_one_and_not_of_many(client):
    batch = client.create_batch([job()])
    assert client.batch(batch.uuid).history == tuple(client.events("batches", batch.uuid))
    assert [event.event for event in client.events("batches", batch.uuid)] == ["Created"]
    with pytest.raises(AttributeError, match="history of this batch"):
        client.batches()[0].history  # noqa: B018


@pytest.mark.parametrize("name", ["speedup", "io_bps"])
def test_only_a_limit_may_be_infinite(client, monkeypatch, name):
    call = client._http.call

    def without(*args, **options):
        answer = call(*args, **options)
        answer["functions"][0][name] = None
        return answer

    monkeypatch.setattr(client._http, "call", without)
    if name == "io_bps":
        assert client.functions()[0].io_bps == math.inf
    else:
        with pytest.raises(exceptions.FpgaPoolError, match=r"speedup: expected `float`, got `null`"):
            client.functions()


def test_batches_come_page_by_page(client, monkeypatch):
    monkeypatch.setattr("fpga_pool.client.api._PAGE", 2)
    made = [client.create_batch([job()]).uuid for _ in range(5)]
    assert [batch.uuid for batch in client.batches()] == made[::-1]
    assert [batch.uuid for batch in client.batches(3)] == made[:1:-1]


def test_jobs_by_state(client):
    batch = client.create_batch([job()])
    assert len(client.jobs(batch.uuid, [JobState.WAITING_INPUT, JobState.COMPLETED])) == 1
    assert client.jobs(batch.uuid, [JobState.COMPLETED]) == []


def test_drain_and_resume(client):
    slot = client.slots()[0]
    assert client.drain(slot.uuid, "why not").state is SlotState.DRAINED
    assert client.resume(slot.uuid).state is SlotState.EMPTY
    assert client.slot(slot.uuid).slot.history[0].event == "DrainRequested"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"function": "sha3"}, exceptions.UnknownFunction),
        ({"requester": "elsewhere"}, exceptions.UnknownRequester),
        ({"input_bytes": -1}, exceptions.InvalidInput),
    ],
)
def test_errors_come_back_as_what_they_were(client, changes, error):
    with pytest.raises(error) as caught:
        client.create_batch([job(**changes)])
    assert type(caught.value) is error
    assert "req-" in caught.value.__notes__[0]


def test_batch_of_another_project_is_not_found(client, pool, serve):
    batch = client.create_batch([job()])
    with Client(serve(pool), project_id="other") as other, pytest.raises(exceptions.NotFound):
        other.batch(batch.uuid)


def test_odd_names_stay_in_their_part_of_the_path(client):
    with pytest.raises(exceptions.NotFound):
        client.batch("../slots")


def test_batch_whose_answer_was_lost_is_recognised(client, pool, no_pauses):
    pool.breaks["create_batch answer"] = MessagingTimeout("committed, and nobody heard of it")
    batch = client.create_batch([job()])
    assert pool.batch_uuids() == [batch.uuid]


def test_gang_whose_answer_was_lost_is_recognised(client, pool, no_pauses):
    pool.breaks["create_gang answer"] = MessagingTimeout("committed, and nobody heard of it")
    gang = client.create_gang(2, 60.0, 0.5)
    assert [queued.uuid for queued in pool.gangs(EVERYTHING)] == [gang.uuid]
    with pytest.raises(exceptions.DuplicateId):
        client.create_gang(2, 60.0, 0.5, uuid=gang.uuid)


def test_id_that_exists_is_refused_where_nothing_was_lost(client):
    batch = client.create_batch([job()])
    with pytest.raises(exceptions.DuplicateId):
        client.create_batch([job()], uuid=batch.uuid)


def test_silent_endpoint_is_unavailable_in_words(no_pauses):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", connect_retries=0) as client:
        with pytest.raises(exceptions.ServiceUnavailable, match="no pool responds at"):
            client.slots()
        with pytest.raises(exceptions.ServiceUnavailable):
            client.create_batch([job()])
        assert no_pauses == [0.5, 1.0, 2.0, 4.0]


def test_a_batch_is_requested_for_as_long_as_its_caller_is_patient(no_pauses):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        Client(f"http://127.0.0.1:{port}", connect_retries=0) as client,
        pytest.raises(exceptions.ServiceUnavailable),
    ):
        client.create_batch([job()], patience_s=120.0)
    assert 120.0 <= sum(no_pauses) < 124.0


def test_what_a_full_database_refuses_is_requested_again(client, pool, no_pauses):
    pool.breaks["create_batch"] = [exceptions.StorageFull("the database is full"), exceptions.StorageFull("still")]
    batch = client.create_batch([job()])
    assert pool.batch_uuids() == [batch.uuid]
    assert no_pauses == [0.5, 1.0]


def test_endpoint_that_does_not_answer_in_time():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            Client(url, timeout_s=0.1, connect_retries=0) as client,
            pytest.raises(exceptions.ServiceUnavailable, match=r"did not respond within 0\.1 s"),
        ):
            client.slots()


@pytest.mark.parametrize("below", ["/v1", "/wrong"])
def test_an_endpoint_below_the_root_of_the_api_is_told_with_what_is_right(pool, serve, below):
    expected = rf"{below} is not where a pool's API begins: expected the URL of its root, such as .*, without /v1"
    with Client(f"{serve(pool)}{below}") as client, pytest.raises(exceptions.NoSuchPath, match=expected):
        client.slots()


def test_an_endpoint_without_a_scheme_is_refused_before_it_is_asked():
    expected = r"endpoint: expected a URL such as http://127\.0\.0\.1:9511, found 'node-1:9511'"
    with pytest.raises(exceptions.InvalidInput, match=expected):
        Client("node-1:9511")


def test_an_endpoint_that_speaks_no_tls_is_told_in_few_words(pool, serve):
    url = serve(pool).replace("http:", "https:")
    with Client(url, connect_retries=0) as client, pytest.raises(exceptions.InvalidInput) as refused:
        client.slots()
    assert str(refused.value).startswith(f"{url}: TLS failed: ")
    assert len(str(refused.value)) < 120


def test_tokens_are_not_logged(client, pool, caplog):
    caplog.set_level(logging.DEBUG)
    batch = client.create_batch([job()])
    wanted = TicketRequest(
        job=client.jobs(batch.uuid)[0].uuid, purpose="send", source_address="127.0.0.1", source_port=1
    )
    (ticket,) = client.tickets(batch.uuid, [wanted])
    assert ticket.elapsed_s <= time.time()
    assert ticket.token not in caplog.text


def test_a_dry_run_waits_for_its_turn_and_stores_nothing(client, pool, monkeypatch):
    busy = exceptions.TooManyRequests("another dry run is being planned")
    pool.breaks["plan_batch"] = [busy, busy]
    plan = client.plan([job(), job()])
    assert (plan.jobs, plan.planned_makespan_s) == (2, max(one.end_s for one in plan.job_list))
    assert client.batches() == []
    monkeypatch.setattr("fpga_pool.client.session._PATIENCE_S", 0.0)
    pool.breaks["plan_batch"] = [busy]
    with pytest.raises(exceptions.TooManyRequests):
        client.plan([job()])


def test_dry_runs_of_tasks_gangs_and_pipelines_take_what_their_runs_take(client):
    task = client.dry_run_task("sha256", [b"x" * 5], requester="node-1", shapes=[TaskShape(1, 2.5)], header=b"head")
    assert (task.slots, task.input_bytes, task.lower_bound_s) == (1, 9, 2.5)
    assert [share.slot for share in task.share_list] == list(task.slot_list)
    gang = client.dry_run_gang(2, 60.0, 0.5, command="x")
    assert (gang.tier, len(gang.process_list), gang.ends_at) == ("foreground", 2, gang.expected_at + 60.0)
    subtasks = [Subtask("a", "sha256", b"12345", "node-1"), Subtask("b", "sha256", after=("a",))]
    pipeline = client.dry_run_pipeline(subtasks)
    assert [one.name for one in pipeline.subtask_list] == ["a", "b"]
    assert pipeline.planned_makespan_s == pipeline.subtask_list[1].end_s
    assert client.tasks() == client.gangs() == client.pipelines() == []


def test_a_dry_run_takes_what_a_run_takes(client):
    plan = client.dry_run([JobSpec("sha256", b"x" * 5, "node-1", name="five")], policy="ect")
    (one,) = plan.job_list
    assert (plan.policy, one.name, one.input_bytes, one.host) == ("ect", "five", 5, "node-1")
    assert plan.ends_at == pytest.approx(plan.dispatched_at + one.end_s, abs=1e-3)
