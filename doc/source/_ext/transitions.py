"""Directive ``.. transitions:: NOUN``: the transition table of an object, as the code has it.

Every rule is asked what it does, with sample objects and events; so the page cannot say anything else than the code.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fpga_pool.model.agent import events as agent_events
from fpga_pool.model.agent import job as agent_job
from fpga_pool.model.agent import slot as agent_slot
from fpga_pool.model.agent.instructions import AgentTable
from fpga_pool.model.agent.objects import Activity, AgentParameters, AgentSlot, HeldJob, Hold, HoldState, Phase
from fpga_pool.model.flavor import Tier, Topology
from fpga_pool.model.lifecycle import batch, design, gang, job, process, slot, task
from fpga_pool.model.lifecycle.table import Table
from fpga_pool.model.messages import agents as m
from fpga_pool.model.messages import gangs as gm
from fpga_pool.model.objects.bitstreams import Design, DesignManifest, DesignState
from fpga_pool.model.objects.gangs import Gang, GangState, Migration, MigrationState, Process, ProcessState
from fpga_pool.model.objects.pool import Batch, BatchState, Job, JobState, Lease, LeaseKind, Slot, SlotState
from fpga_pool.model.objects.tasks import Task, TaskState
from fpga_pool.model.values import changed

AnyTable = Table[Any] | AgentTable[Any]

_NAME = "00000000-0000-0000-0000-000000000000"
_ABOUT = {"job": _NAME, "attempt": 1, "at": 0.0}
_TENANT = {"project_id": "p", "user_id": "u"}

_JOB = Job(
    uuid=_NAME,
    batch_uuid=_NAME,
    **_TENANT,
    index=0,
    name="",
    function="f",
    requester="h",
    input_bytes=0,
    created_at=0.0,
)
_BATCH = Batch(uuid=_NAME, **_TENANT, name="", policy="", created_at=0.0, jobs=1)
_SLOT = Slot(name="h/c/r", host="h", card="c", region="r", board="b", kind="k")
_LEASE = Lease(
    uuid=_NAME, slot="h/c/r", kind=LeaseKind.POOL, holder="s", project_id="", epoch=1, revocable=True, granted_at=0.0
)

_GANG = Gang(uuid=_NAME, **_TENANT, name="", processes=1, runtime_s=1.0, cpu_usage=1.0, work_s=1.0, created_at=0.0)
_PROCESS = Process(
    uuid=_NAME, gang_uuid=_NAME, index=0, attempt=1, processor="h/pcpu/0", host="h", tier=Tier.BACKGROUND
)
_MIGRATION = Migration(uuid=_NAME, gang_uuid=_NAME, attempt=2, began_at=0.0)
_TASK = Task(
    uuid=_NAME,
    **_TENANT,
    name="",
    function="f",
    slots=1,
    shares=1,
    topology=Topology.ANY,
    input_bytes=0,
    created_at=0.0,
)
_DESIGN = Design(
    uuid=_NAME,
    **_TENANT,
    function="f",
    manifest=DesignManifest(name="f", board="b", kind="k", io_bps=1.0, b_s_per_byte=1.0, simulates="s"),
    size_bytes=1,
    sha256="",
    created_at=0.0,
)
_ABOUT_PROCESS = {"gang": _NAME, "index": 0, "attempt": 1, "at": 0.0}

_PLANNED = job.Planned(host="h", slot="h/c/r", order=0, dispatched_at=0.0, start_s=0.0, end_s=0.0, transfer=())
_ENDS = (JobState.RESULT_HELD, JobState.FAILED, JobState.CANCELLED)

_ASSIGNMENT = m.AssignJob(job=_NAME, attempt=1, project_id="p", function="f", input_bytes=0, order=0, expected_s=0.0)
_HELD = HeldJob(slot="h/c/r", assignment=_ASSIGNMENT)
_HOLD_SLOT = m.HoldSlot(instance=_NAME, project_id="p", function="f", lease_epoch=1)
_OF_SLOT = {"slot": "h/c/r"}
_OF_ATTEMPT = {**_OF_SLOT, "job": _NAME, "attempt": 1}
_FAILURE = {"code": "", "message": "", "retryable": True}

#: What each table is asked about: its states, objects that make a difference to its rules, and one event of each kind,
#: with the words that tell variants apart.
SAMPLES: Mapping[str, tuple[AnyTable, Iterable[Any], Iterable[tuple[str, Any]], Iterable[tuple[str, Any]]]] = {
    "job": (
        job.JOB,
        JobState,
        [("", _JOB), ("cancellation requested", changed(_JOB, cancel_requested=True))],
        [
            ("", _PLANNED),
            ("", m.InputStaged(**_ABOUT)),
            ("", m.JobStarted(**_ABOUT)),
            ("", m.JobFinished(**_ABOUT, compute_s=0.0, result_bytes=0, result_sha256="")),
            ("retryable", m.JobFailed(**_ABOUT, code="", message="", retryable=True)),
            ("not retryable", m.JobFailed(**_ABOUT, code="", message="", retryable=False)),
            ("", job.Moved(place=_PLANNED)),
            ("", job.Retimed(dispatched_at=0.0, start_s=0.0, end_s=0.0, transfer=())),
            ("", job.Displaced(reason="")),
            ("", job.GaveUp(code="", reason="")),
            ("", job.HoldChanged(reason="")),
            ("", job.Skipped(reason="")),
            ("", job.ResultLost(reason="")),
            ("", job.EvictRequested(keep_progress=True)),
            ("", m.JobEvicted(**_ABOUT, done=0.0)),
            ("", job.CancelRequested()),
            ("", m.JobReleased(**_ABOUT)),
            ("", m.ResultDelivered(**_ABOUT)),
            ("", m.ResultExpired(**_ABOUT)),
        ],
    ),
    "batch": (
        batch.BATCH,
        BatchState,
        [
            ("the last job", _BATCH),
            ("not the last job", changed(_BATCH, jobs=2)),
            ("the last job, another failed", changed(_BATCH, jobs=2, jobs_failed=1)),
        ],
        [
            (
                "",
                batch.BatchPlanned(
                    dispatched_at=0.0, makespan_s=0.0, lower_bound_s=0.0, completion_s=0.0, completion_bound_s=0.0
                ),
            ),
            ("", batch.BatchBegun(dispatched_at=0.0)),
            ("", batch.BatchCancelRequested()),
            ("", batch.DependenciesCompleted(batches=())),
            ("", batch.BatchHeld()),
            ("", batch.BatchReleased()),
            ("", batch.PriorityChanged(priority=1)),
            ("", batch.JobReopened()),
            *[(f"job {state}", batch.JobEnded(state=state)) for state in _ENDS],
        ],
    ),
    "slot": (
        slot.SLOT,
        SlotState,
        [("", _SLOT), ("a function is loaded", changed(_SLOT, function="f"))],
        [
            *[
                (f"agent saw {state}", m.SlotChanged(slot="h/c/r", at=0.0, state=state))
                for state in SlotState
                if state is not SlotState.DRAINED
            ],
            ("", slot.DrainRequested(reason="")),
            ("", slot.DrainCompleted()),
            ("", slot.ResumeRequested()),
            ("", slot.HostLost()),
        ],
    ),
    "task": (
        task.TASK,
        TaskState,
        [("", _TASK)],
        [
            ("", task.TaskPlaced(slots=1, ends_at=0.0)),
            ("", task.TaskDisplaced(reason="")),
            ("", task.TaskCompleted()),
            ("", task.TaskFailed(reason="")),
            ("", task.TaskCancelRequested()),
            ("", task.TaskCancelled()),
        ],
    ),
    "design": (
        design.DESIGN,
        DesignState,
        [("", _DESIGN)],
        [
            ("", design.Approved()),
            ("", design.Rejected()),
            ("", design.Revoked()),
            ("", design.Published()),
            ("", design.MadePrivate()),
        ],
    ),
    "gang": (
        gang.GANG,
        GangState,
        [("", _GANG)],
        [
            ("", gang.StartedBehind()),
            ("", gang.StartedInFront(ends_at=0.0)),
            ("", gang.Swapped(ends_at=0.0)),
            ("", gang.MoveBegun(ends_at=0.0)),
            ("", gang.MoveEnded()),
            ("", gang.Killed(ends_at=0.0)),
            ("", gang.Displaced(reason="")),
            ("", gang.TrialEnded()),
            ("", gang.GaveWay(for_s=0.0)),
            ("", gang.Completed(ran_s=0.0)),
            ("", gang.GangCancelRequested()),
            ("", gang.GangCancelled()),
            ("", gang.GangGaveUp(reason="")),
        ],
    ),
    "process": (
        process.PROCESS,
        ProcessState,
        [("", _PROCESS)],
        [
            ("", process.Launched(gang=_GANG)),
            ("", process.NothingLeftToDo()),
            ("", gm.ProcessStarted(**_ABOUT_PROCESS)),
            ("", gm.ProcessExited(**_ABOUT_PROCESS)),
            ("", process.TierChanged(tier=Tier.FOREGROUND)),
            ("", process.PriorityChanged(exchanged=True)),
            ("", process.SaveRequested()),
            ("", gm.ProcessSaved(**_ABOUT_PROCESS, done_s=0.0)),
            ("", process.StopRequested(reason="")),
            ("", gm.ProcessStopped(**_ABOUT_PROCESS)),
            ("", gm.ProcessFailed(**_ABOUT_PROCESS, message="")),
            ("", process.Released()),
            ("", process.Vanished(reason="")),
        ],
    ),
    "migration": (
        gang.MIGRATION,
        MigrationState,
        [("", _MIGRATION)],
        [("", gang.AllSaved()), ("", gang.AllResumed()), ("", gang.MigrationFailed(reason=""))],
    ),
    "agent-job": (
        agent_job.JOB,
        Phase,
        [("", _HELD)],
        [
            ("", agent_events.InputArrived(job=_NAME)),
            ("", agent_job.Begun()),
            ("", agent_events.ComputationEnded(**_OF_ATTEMPT, compute_s=0.0, result_bytes=0, result_sha256="")),
            ("", agent_events.ComputationFailed(**_OF_ATTEMPT, **_FAILURE)),
            ("", agent_job.AttemptFailed(**_FAILURE)),
            ("", agent_events.EndsRecorded(jobs=(_HELD.at(Phase.HELD),))),
            ("", agent_events.EndsLost(jobs=())),
            ("", agent_job.Delivered()),
            ("", agent_job.RetentionEnded()),
            ("", m.RetimeJob(job=_NAME, attempt=1, dispatched_at=0.0, transfer=())),
            ("", agent_job.Evicted(done=0.0)),
            ("", agent_job.Replaced()),
            ("", m.ReleaseJob(job=_NAME)),
        ],
    ),
    "agent-slot": (
        agent_slot.SLOT,
        Activity,
        [("", AgentSlot(name="h/c/r", parameters=AgentParameters(), function="f", preparing=_HOLD_SLOT))],
        [
            ("", agent_slot.LoadBegun(function="f")),
            ("", agent_slot.ComputationBegun(job=_HELD)),
            ("", agent_slot.PreparationBegun(hold=_HOLD_SLOT)),
            ("", agent_slot.UseBegun(hold=_HOLD_SLOT)),
            ("", agent_slot.UseEnded()),
            ("", agent_slot.RestBegun(after_s=0.0)),
            ("", agent_slot.RestEnded()),
            ("", agent_slot.AheadWanted(action=None)),
            ("", agent_events.Loaded(**_OF_SLOT)),
            ("", agent_events.LoadRefused(**_OF_SLOT, code="", message="")),
            ("", agent_events.LoadFailed(**_OF_SLOT, reason="")),
            ("for an instance", agent_events.Scrubbed(**_OF_SLOT)),
            ("", agent_events.ScrubFailed(**_OF_SLOT, reason="")),
            ("", agent_events.ComputationEnded(**_OF_ATTEMPT, compute_s=0.0, result_bytes=0, result_sha256="")),
            ("", agent_events.ComputationFailed(**_OF_ATTEMPT, **_FAILURE)),
            ("of the slot", agent_events.ComputationFailed(**_OF_ATTEMPT, **_FAILURE, slot_failed=True)),
            ("", agent_events.ComputationOverdue(**_OF_ATTEMPT)),
            ("as it was", agent_events.CardSeen(**_OF_SLOT, present=True, function="f")),
            ("absent", agent_events.CardSeen(**_OF_SLOT, present=False)),
        ],
    ),
    "agent-hold": (
        agent_slot.HOLD,
        HoldState,
        [("", Hold(action=_HOLD_SLOT))],
        [
            ("the same use", agent_slot.HoldRequested(slot="h/c/r", action=_HOLD_SLOT)),
            ("another use", agent_slot.HoldRequested(slot="h/c/r", action=changed(_HOLD_SLOT, function="g"))),
            ("", agent_slot.PreparationBegan(slot="h/c/r")),
            ("", agent_slot.Prepared(slot="h/c/r")),
            ("", agent_slot.PreparationFailed(slot="h/c/r", problem="")),
            ("", agent_slot.FreeRequested(slot="h/c/r", action=m.FreeSlot(instance=_NAME, lease_epoch=1))),
        ],
    ),
    "lease": (
        slot.LEASE,
        type(_LEASE.state),
        [("", _LEASE)],
        [("", slot.LeaseBroken(reason="")), ("", slot.LeaseRestored()), ("", slot.LeaseReleased())],
    ),
}


def transitions(noun: str) -> list[tuple[str, str, str, str]]:
    """Return a row for each thing that can happen: state, event, next state, what the agent is told."""
    table, states, things, events = SAMPLES[noun]
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for state in states:
        for variant, event in events:
            if not table.allows(state, type(event)):
                continue
            outcomes = {words: _outcome(table, _at(table, thing, state), event) for words, thing in things}
            same = len(set(outcomes.values())) == 1
            for words, (after, told) in outcomes.items():
                key = (str(state), type(event).__name__, after, told)
                rows.setdefault(key, []).append(", ".join(filter(None, [variant, "" if same else words])))
    return [
        (state, f"{event} ({'; '.join(dict.fromkeys(when))})" if any(when) else event, after, told)
        for (state, event, after, told), when in rows.items()
    ]


def _at(table: AnyTable, thing: Any, state: Any) -> Any:
    return changed(thing, **{_state_field(table): state})


def _outcome(table: AnyTable, thing: Any, event: object) -> tuple[str, str]:
    changed, actions = table.transition(thing, event, 0.0)
    after = "(gone)" if changed is None else str(getattr(changed, _state_field(table)))
    return after, ", ".join(dict.fromkeys(type(action).__name__ for action in actions))


def _state_field(table: AnyTable) -> str:
    return table.state_field if isinstance(table, AgentTable) else "state"


class Transitions(SphinxDirective):
    """Renders one table."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table, written as reStructuredText and parsed."""
        told = "Instructions" if self.arguments[0].startswith("agent-") else "Told to the agent"
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 16 44 16 16", ""]
        for cells in [("State", "Event", "Next", told), *transitions(self.arguments[0])]:
            lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(cells)]
        container = nodes.Element()
        self.state.nested_parse(StringList(lines, source="transitions"), self.content_offset, container)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("transitions", Transitions)
    return {"parallel_read_safe": True}
