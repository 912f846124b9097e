"""Servers of Nova as requesters: who may name them, how they are planned, and which host shapes their flows."""

from uuid import uuid4

import pytest

from fpga_pool.model.exceptions import UnknownRequester
from fpga_pool.model.messages.agents import FlowSeen, ObservedServer, ReleaseFlow, ShapeFlow
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.batch.planning import with_servers
from fpga_pool.model.rules.batch.transfers import earlier_transfers
from fpga_pool.model.values import changed

ONE, TWO = str(uuid4()), str(uuid4())


@pytest.fixture
def runs(pool):
    """Return a function to report servers of a host, such as `runs("h1", (ONE, "p", 2e6, True))`.

    A server has a uuid, a project, an egress rate, and whether its flows are held to their rates.
    """

    def report(host, *servers):
        observed = tuple(
            ObservedServer(uuid=uuid, project_id=project, egress_bps=egress_bps, held=held)
            for uuid, project, egress_bps, held in servers
        )
        return pool.heard(changed(pool.heartbeat(host, slots=(), jobs=()), servers=observed))

    return report


@pytest.fixture
def submit(pool):
    """Return a function that submits a job whose input of 1 MB a requester sends, and returns its uuid."""

    def make(requester, project="p", input_bytes=1_000_000):
        job = JobRequest(uuid=str(uuid4()), name="", function="aes", requester=requester, input_bytes=input_bytes)
        pool.submit(BatchRequest(uuid=str(uuid4()), project_id=project, user_id="u", name="", policy="", jobs=(job,)))
        return job.uuid

    return make


def seen(pool, uuid, address="10.0.0.7"):
    report = FlowSeen(**pool.about(uuid), source_address=address, source_port=5000)
    return pool.report(report, host=pool.job(uuid).host)


def flows(pool):
    """Return the flow commands sent since the last call: host, action, job and server."""
    return [
        (command.host, type(command.action), command.action.job, getattr(command.action, "server", None))
        for command in pool.sent()
        if isinstance(command.action, ShapeFlow | ReleaseFlow)
    ]


def servers(pool):
    with pool.tx() as tx:
        return {server.name: server.egress_bps for server in tx.servers(uuids=[ONE, TWO])}


def test_servers_are_those_of_the_last_heartbeat_of_their_host(pool, runs):
    runs("h1", (ONE, "p", 2e6, True), (TWO, "p", 3e6, True))
    assert servers(pool) == {f"h1/{ONE}": 2e6, f"h1/{TWO}": 3e6}
    runs("h1", (ONE, "p", 1e6, True))
    assert servers(pool) == {f"h1/{ONE}": 1e6}
    runs("h2", (ONE, "p", 1e6, True))
    pool.heard(changed(pool.heartbeat("h1", slots=(), jobs=()), servers=None))
    assert servers(pool) == {f"h1/{ONE}": 1e6, f"h2/{ONE}": 1e6}
    runs("h1")
    assert servers(pool) == {f"h2/{ONE}": 1e6}


def test_a_server_of_another_project_is_as_unknown_as_one_that_does_not_run(pool, runs, submit):
    runs("h1", (ONE, "q", 2e6, True))
    for uuid in (ONE, TWO):
        with pytest.raises(UnknownRequester, match=f"requester: no server {uuid} of this project runs on a host"):
            submit(f"server:{uuid}")
    submit(f"server:{ONE}", project="q")


def test_the_input_of_a_server_is_planned_at_what_its_tap_lets_pass(pool, runs, submit):
    """1 MB takes 1 s at the 8 Mbit/s of the responder, and 4 s at the server's 2 Mbit/s."""
    runs("h1", (ONE, "p", 2e6, True))
    job = submit(f"server:{ONE}")
    pool.plan()
    assert [(piece.end_s - piece.begin_s, piece.bps) for piece in pool.job(job).transfer] == [
        (pytest.approx(4.0), pytest.approx(2e6))
    ]


def test_what_a_server_sends_already_is_in_the_way_of_a_plan_in_which_it_has_no_part(pool, runs, submit):
    runs("h1", (ONE, "p", 2e6, True))
    sent = submit(f"server:{ONE}")
    pool.plan()
    submit("h1")
    snap, now_s = pool.snapshot(), pool.now_s
    with pool.tx() as tx:
        snap = with_servers(tx, snap, [pool.job(sent)])
    left = earlier_transfers([pool.job(sent)], snap.view, now_s, now_s + 0.25)
    assert [snap.view.hosts[row] for row in left.requester] == [f"server:{ONE}"]
    assert left.bps.tolist() == [2e6]


def test_replanning_takes_servers_as_it_takes_hosts(pool, runs, submit):
    runs("h1", (ONE, "p", 2e6, True), (TWO, "p", 2e6, True))
    submit(f"server:{ONE}")
    pool.plan()
    second = submit(f"server:{TWO}")
    assert [job.uuid for job in pool.replan().placed] == [second]


def test_the_agent_of_the_server_holds_its_flow(pool, runs, submit):
    runs("h1", (ONE, "p", 2e6, True))
    job = submit(f"server:{ONE}")
    pool.plan()
    pool.sent()
    assert seen(pool, job) == []
    assert flows(pool) == [("h1", ShapeFlow, job, ONE)]
    pool.bring(job, JobState.STAGED)
    assert flows(pool) == [("h1", ReleaseFlow, job, None)]


def test_a_flow_of_a_server_whose_tap_is_not_ours_is_not_held(pool, runs, submit):
    runs("h1", (ONE, "p", 2e6, False))
    job = submit(f"server:{ONE}")
    pool.plan()
    pool.sent()
    assert len(seen(pool, job)) == 1
    assert flows(pool) == []


def test_one_address_in_two_networks_is_two_sources(pool, runs, submit):
    runs("h1", (ONE, "p", 2e6, True), (TWO, "q", 2e6, True))
    first, second = submit(f"server:{ONE}"), submit(f"server:{TWO}", project="q")
    pool.plan()
    pool.plan()
    pool.sent()
    for job in (first, second):
        seen(pool, job)
    assert flows(pool) == [("h1", ShapeFlow, first, ONE), ("h1", ShapeFlow, second, TWO)]


def test_work_of_a_server_that_has_ended_does_not_stop_the_pool(pool, runs, submit):
    runs("h1", (ONE, "p", 2e6, True))
    job, other = submit(f"server:{ONE}"), submit(f"server:{ONE}")
    pool.plan()
    seen(pool, job)
    runs("h1")
    pool.sent()
    pool.plan()
    assert {pool.job(uuid).state for uuid in (job, other)} == {JobState.WAITING_INPUT}
    pool.bring(job, JobState.STAGED)
    assert flows(pool) == []
