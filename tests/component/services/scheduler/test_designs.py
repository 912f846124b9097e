"""Designs at the scheduler, on a real database: signers, quotas, and the effect on jobs and slots."""

import contextlib
import hashlib
import uuid
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.model.exceptions import (
    BitstreamRefused,
    Conflict,
    Contended,
    DuplicateId,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    UnknownFunction,
)
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.messages.requests import EventPage
from fpga_pool.model.messages.work import (
    DesignChange,
    DesignRequest,
    PipelineRequest,
    ShareRequest,
    SubtaskRequest,
    TaskRequest,
)
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.objects.quotas import QuotaLimits
from fpga_pool.rpc.identity import key_text

BITSTREAM = b"a partial bitstream"
SIGNER = Ed25519PrivateKey.generate()


def request(project="p", key=None, **fields):
    wanted = DesignRequest(
        uuid=str(uuid.uuid4()), project_id=project, user_id="u", bitstream=BITSTREAM,
        **{"name": "mine", "board": "fast", "kind": "small", "io_bps": 1e6, "b_s_per_byte": 1e-9,
           "simulates": "sha256"} | fields,
    )  # fmt: skip
    if key is None:
        return wanted
    signature = key.sign(wanted.signed(hashlib.sha256(BITSTREAM).hexdigest()))
    return DesignRequest(
        **{name: getattr(wanted, name) for name in wanted.__struct_fields__} | {"signature": signature}
    )


@pytest.fixture
def trusting(running):
    """Return a function that lets the scheduler trust a signer."""

    def trust(*, approves):
        running.service.settings = replace(
            running.service.settings,
            design_signers=(SIGNER.public_key(),),
            signed_designs_are_approved=approves,
        )
        return running.api

    return trust


@pytest.mark.parametrize(("approves", "state"), [(False, "SUBMITTED"), (True, "APPROVED")])
def test_a_trusted_signature_is_shown_and_approves_where_that_is_configured(trusting, approves, state):
    api = trusting(approves=approves)
    design = api.create_design(request(key=SIGNER))
    assert (design.signer, design.state) == (key_text(SIGNER.public_key()), state)
    unsigned = api.create_design(request(name="other"))
    assert (unsigned.signer, unsigned.state) == ("", "SUBMITTED")


def test_a_signature_of_another_signer_or_manifest_is_refused(trusting):
    api = trusting(approves=True)
    signed = request(key=SIGNER)
    for wrong in (request(key=Ed25519PrivateKey.generate()), replaced(signed, speedup=1000.0)):
        with pytest.raises(InvalidInput, match="signature: not one of a trusted signer"):
            api.create_design(wrong)


def replaced(signed, **fields):
    return DesignRequest(**{name: getattr(signed, name) for name in signed.__struct_fields__} | fields)


def test_designs_count_in_the_quota_until_they_are_deleted(running):
    running.api.set_quota("p", QuotaLimits(design_bytes=2 * len(BITSTREAM)))
    first = running.api.create_design(request())
    running.api.create_design(request(name="other"))
    with pytest.raises(QuotaExceeded, match="design_bytes: 19 requested, 38 of 38 used"):
        running.api.create_design(request(name="third"))
    running.api.delete_design("p", first.uuid)
    third = request(name="third")
    running.api.create_design(third)
    with pytest.raises(DuplicateId):
        running.api.create_design(third)


def test_a_decision_and_a_deletion_are_repeated_where_other_writers_are_in_the_way(running, monkeypatch):
    admission, begun = running.service.store.admission, []

    @contextlib.contextmanager
    def contended():
        with admission() as tx:
            yield tx
            begun.append(1)
            if len(begun) % 2:
                raise Contended("deadlock")

    design = running.api.create_design(request())
    monkeypatch.setattr(running.service.store, "admission", contended)
    assert running.api.change_design(design.uuid, DesignChange(state="APPROVED")).state == "APPROVED"
    assert running.api.design(None, design.uuid).history[-1].number == 1
    running.api.delete_design("p", design.uuid)
    assert len(begun) == 4


def test_an_agent_gets_leave_for_an_approved_design_alone_and_its_bytes_only_where_it_lacks_them(running):
    agent = running.host()
    design = running.api.create_design(request())

    def load(cached=""):
        return running.api.load_design(agent.name, agent.name, design.function, "a nonce", cached)

    with pytest.raises(BitstreamRefused, match="SUBMITTED, not APPROVED"):
        load()
    running.api.change_design(design.uuid, DesignChange(state="APPROVED"))
    answer = load()
    running.key.public_key().verify(answer.signature, answer.grant.signed())
    assert (answer.bitstream, answer.grant.nonce, answer.grant.host) == (BITSTREAM, "a nonce", agent.name)
    assert load(design.sha256).bitstream == b""
    running.api.change_design(design.uuid, DesignChange(state="REVOKED"))
    with pytest.raises(BitstreamRefused, match="REVOKED, not APPROVED"):
        load(design.sha256)


def test_revoked_functions_leave_jobs_and_slots(running, until):
    agent = running.host()
    design = running.api.create_design(request())
    with pytest.raises(UnknownFunction):
        running.create(agent, design.function)
    running.api.change_design(design.uuid, DesignChange(state="APPROVED"))
    batch = running.create(agent, design.function, "sha256")
    until(lambda: running.states(batch) == ["WAITING_INPUT"] * 2)
    slot = running.jobs(batch)[0].slot
    running.observe(agent, slot, (SlotState.LOADING, design.function, ""), (SlotState.READY, design.function, ""))
    assert slot.endswith(("r0", "r1"))  # the slots of its kind
    running.api.change_design(design.uuid, DesignChange(state="REVOKED", reason="a fault"))
    assert running.states(batch) == ["FAILED", "WAITING_INPUT"]
    assert running.jobs(batch)[0].error_code == "fpga_pool.design_withdrawn"
    until(lambda: slot in {name for name, function in agent.ahead if function == "aes"})


def test_tasks_and_pipelines_of_those_who_may_name_a_design_get_slots_for_it_and_end_with_it(running, until):
    agent = running.host()
    design = running.api.create_design(request(kind="large"))
    works = of_each_kind(running, agent, design.function)
    for create, _ in works:
        with pytest.raises(UnknownFunction, match="does not belong to an approved design that the project may use"):
            create("p")
    running.api.change_design(design.uuid, DesignChange(state="APPROVED"))
    for create, jobs in works:
        with pytest.raises(UnknownFunction, match="does not belong to an approved design"):
            create("q")
        made = create("p")
        until(lambda jobs=jobs, made=made: [job.state for job in jobs(made)] == ["WAITING_INPUT"])
        (job,) = jobs(made)
        assert job.slot.endswith("/c/r2")  # the slot of its kind
        with pytest.raises(Conflict, match=r"1 job of mine.* must end first"):
            running.api.delete_design("p", design.uuid)
        running.api.change_design(design.uuid, DesignChange(state="REVOKED"))
        (ended,) = jobs(made)
        assert (ended.state, ended.error_code) == ("FAILED", "fpga_pool.design_withdrawn")
        running.released(job)
        running.api.change_design(design.uuid, DesignChange(state="APPROVED"))


def of_each_kind(running, agent, function):
    """Return functions that create a task and a pipeline of one job, each with a function that lists its jobs."""

    def task(project):
        share = ShareRequest(uuid=str(uuid.uuid4()), name="", requester=agent.name, input_bytes=1000)
        named = {"uuid": str(uuid.uuid4()), "project_id": project, "user_id": "u", "name": "n"}
        return running.api.create_task(TaskRequest(**named, function=function, shares=(share,)))

    def pipeline(project):
        subtask = SubtaskRequest(
            uuid=str(uuid.uuid4()), name="one", function=function, requester=agent.name, input_bytes=1000
        )
        named = {"uuid": str(uuid.uuid4()), "project_id": project, "user_id": "u", "name": "n"}
        return running.api.create_pipeline(PipelineRequest(**named, subtasks=(subtask,)))

    return (
        (task, lambda made: running.api.task("p", made.uuid).share_list),
        (pipeline, lambda made: running.api.pipeline("p", made.uuid).subtask_list),
    )


def test_instances_of_those_who_may_name_a_design_get_slots_for_it_and_it_stays_while_they_do(running, until):
    agent, design = running.host(), running.api.create_design(request(kind="large"))
    wanted = AcceleratorRequest(function=design.function)

    def claim(instance, project):
        return [slot.name for slot in running.api.claim_slots(agent.name, agent.name, instance, project, wanted)]

    for decided in (DesignChange(), DesignChange(state="APPROVED")):
        running.api.change_design(design.uuid, decided)
        with pytest.raises(UnknownFunction, match="does not belong to an approved design that the project may use"):
            claim("vm", "q")
    assert claim("vm", "p") == [f"{agent.name}/c/r2"]
    (known,) = running.api.observations().designs
    assert (known.function, known.project_id) == (design.function, "p")
    running.api.change_design(design.uuid, DesignChange(state="REVOKED", reason="a fault"))
    assert running.api.observations().designs == ()
    with pytest.raises(UnknownFunction):  # as for an instance that is restarted
        claim("vm", "p")
    for project in ("p", None):
        with pytest.raises(Conflict, match=r"1 instance of mine.* must be deleted first"):
            running.api.delete_design(project, design.uuid)
    [lease] = running.api.instance_leases(agent.name)["vm"]
    running.api.release_slots(agent.name, agent.name, {lease.uuid: lease.generation})
    with pytest.raises(NotFound):
        running.api.delete_design("q", design.uuid)
    assert running.api.delete_design(None, design.uuid).uuid == design.uuid


def test_what_is_submitted_and_decided_is_told_and_listed_with_the_request_that_caused_it(running):
    design = running.api.create_design(request())
    running.api.change_design(design.uuid, DesignChange(state="APPROVED", public=True, reason="checked"))
    found = [(one.event_type, one.payload["design"]["state"], one.payload["reason"]) for one in running.published]
    assert found == [("design.submitted", "SUBMITTED", "")] + [("design.decided", "APPROVED", "checked")] * 2
    events = running.api.pool_events(EventPage(project_id="p", kind=("design",))).events
    assert [one.entry.event for one in events] == ["Published", "Approved", "Created"]
    assert {(one.uuid, one.name) for one in events} == {(design.uuid, "mine")}
