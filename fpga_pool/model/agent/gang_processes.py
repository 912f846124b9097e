"""Gang processes on one host as a state machine: it turns events into instructions, without I/O, clock or threads.

`handle` is the only entry point.  The service (`services.agent.processes`) and the simulated host (`sim.gangs.host`)
feed it with events and carry out the instructions.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fpga_pool.model.agent.gang_messages import (
    Answer,
    CommandReceived,
    DiscardMemory,
    EndGuest,
    FinishLaunch,
    GuestEnded,
    GuestInstruction,
    GuestLaunched,
    GuestRefused,
    GuestsSeen,
    LaunchGuest,
    LeaveGuest,
    MoveGuest,
    ProcessesEvent,
    ProcessesInstruction,
    ProcessesRestored,
    Record,
    SaveGuest,
)
from fpga_pool.model.agent.gang_process import (
    HeldProcess,
    Key,
    Launched,
    Phase,
    Refused,
    Running,
    Step,
    about,
    sight,
    started,
    transition,
)
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.model.messages.gangs import (
    GangAction,
    LaunchProcess,
    ObservedProcess,
    ObservedProcessor,
    ProcessSaved,
    ProcessStopped,
    SaveProcess,
    SetTier,
    StopProcess,
)

#: A processor and one of its tiers.
Place = tuple[int, Tier | None]
Handled = tuple["ProcessesState", tuple[ProcessesInstruction, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesState:
    """State of an agent for the processes of gangs on its host."""

    #: Numbers of the processors that the host offers to gangs, by name.
    processors: Mapping[str, int]
    #: Processes that the agent holds, in the order of their commands.
    held: Mapping[Key, HeldProcess] = field(default_factory=dict)
    #: The guests as they were last observed.
    seen: Mapping[Key, Running] = field(default_factory=dict)

    @property
    def withdrawn(self) -> dict[str, int]:
        """Numbers of the processors that gangs still use but the host no longer offers to gangs, by name."""
        had = {held.processor for held in self.held.values()} - self.processors.keys()
        return {name: int(name.rpartition("/")[2]) for name in sorted(had)}

    def takes(self, name: str) -> bool:
        """Return whether the host accepts commands for a processor: it offers it to gangs, or a gang still uses it."""
        return name in self.processors or name in self.withdrawn

    def observed_processors(self, fences: Mapping[str, tuple[int, int]]) -> tuple[ObservedProcessor, ...]:
        """Return the processors that the host provides for gangs, and others that gangs still occupy.

        `fences`: by processor, epoch and sequence of the last command.
        """
        return tuple(
            ObservedProcessor(
                processor=name,
                number=number,
                epoch=fences.get(name, (0, 0))[0],
                sequence=fences.get(name, (0, 0))[1],
                offered=name in self.processors,
            )
            for name, number in (*self.processors.items(), *self.withdrawn.items())
        )

    def observed(self) -> tuple[ObservedProcess, ...]:
        """Return all processes held, with their last observed progress."""
        return tuple(_observed(held, self.seen.get(key)) for key, held in self.held.items())

    def with_held(self, held: HeldProcess) -> "ProcessesState":
        """Return the state with a process added or replaced."""
        return replace(self, held={**self.held, held.key: held})

    def without(self, key: Key) -> "ProcessesState":
        """Return the state without a process."""
        return replace(self, held={other: held for other, held in self.held.items() if other != key})


def _observed(held: HeldProcess, seen: Running | None) -> ObservedProcess:
    launch = held.launch
    return ObservedProcess(
        gang=launch.gang,
        index=launch.index,
        attempt=launch.attempt,
        processor=held.processor,
        tier=launch.tier,
        done_s=seen.done_s if seen else launch.done_s,
        rate=seen.rate if seen else 0.0,
        progress_at=seen.progress_at if seen else 0.0,
        ending=held.ending,
    )


def handle(state: ProcessesState, event: ProcessesEvent, now_s: float) -> Handled:
    """Return the state after an event at `now_s`, UTC seconds of the pool, and the instructions."""
    match event:
        case ProcessesRestored(processes):
            return replace(state, held={held.key: held for held in processes}), ()
        case CommandReceived():
            return _command(state, event, now_s)
        case GuestsSeen(guests):
            return _inspect(replace(state, seen=guests), now_s)
        case GuestLaunched(key):
            return _launched(state, key, now_s)
        case GuestRefused(key, message):
            return _refused(state, key, message, now_s)
        case GuestEnded(key):
            return _ended(state, key)


# Commands --------------------------------------------------------------------------------------------------------


def _command(state: ProcessesState, event: CommandReceived, now_s: float) -> Handled:
    """Execute a command once: a repeated one is only answered, an outdated one is refused."""
    command = event.command
    if event.repeated:
        return state, (Answer(Outcome(command=command.id, outcome="repeated")),)
    epoch, sequence = event.fence
    if command.fence <= event.fence:
        reason = f"{command.slot} has executed command {sequence} of epoch {epoch}: this one is outdated"
        return state, (Answer(Outcome(command=command.id, outcome="refused", reason=reason)),)
    action = command.action
    if not isinstance(action, LaunchProcess | SetTier | SaveProcess | StopProcess):
        reason = f"{type(action).__name__} is not a command for a gang processor"
        return state, (Answer(Outcome(command=command.id, outcome="refused", reason=reason)),)
    after, instructions = _act(state, command, action, now_s)
    return after, (*instructions, Answer(Outcome(command=command.id, outcome="accepted")))


def _act(state: ProcessesState, command: Command, action: GangAction, now_s: float) -> Handled:
    key = Key(action.gang, action.index, action.attempt)
    held = state.held.get(key)
    if isinstance(action, LaunchProcess):
        held = HeldProcess(command.slot, action)
    elif held is not None:
        held, _ = transition(held, action, now_s)
    elif not isinstance(action, StopProcess):
        return state, (Record(command=command),)
    else:
        record = Record(command=command, reports=(ProcessStopped(**about(key, now_s)),))
        return state, (record, DiscardMemory(action.saved)) if action.saved else (record,)
    return state.with_held(held), (Record(command=command, keep=held),)


# Guests ----------------------------------------------------------------------------------------------------------


def _inspect(state: ProcessesState, now_s: float) -> Handled:
    """Reconcile the observed with the desired processes; the places of ending ones are filled at the next check."""
    instructions: list[ProcessesInstruction] = [
        _drop(key, guest) for key, guest in state.seen.items() if key not in state.held
    ]
    for held in list(state.held.values()):
        state, steps = _inspect_one(state, held, now_s)
        instructions += steps
    state, steps = _fill(state, now_s)
    return state, (*instructions, *steps)


def _drop(key: Key, guest: Running) -> GuestInstruction:
    """Return the action for a guest whose process is not held.

    A saved guest is left alone: it was reported before the agent forgot it, so the scheduler knows it.
    """
    return LeaveGuest(key) if guest.phase is Phase.SAVED else EndGuest(key)


def _inspect_one(state: ProcessesState, held: HeldProcess, now_s: float) -> Handled:
    if held.farewell is not None:  # the instruction before the report has failed
        held = replace(held, farewell=None)
        state = state.with_held(held)
    after, step = transition(held, sight(state.seen.get(held.key)), now_s)
    key, launch = held.key, held.launch
    match step:
        case Step.SAVE:
            return state, (SaveGuest(key),)
        case Step.FINISH_LAUNCH if not launch.saved:
            return _launched(state, key, now_s)
        case Step.FINISH_LAUNCH:
            return state, (FinishLaunch(key, launch.saved),)
        case Step.END:
            return state.with_held(after), (EndGuest(key, _unwanted(after)),)
        case Step.LET_GO:
            state, record = _forget(state, after)
            if not isinstance(after.farewell, ProcessSaved):
                return state, (*record, EndGuest(key, launch.saved))
            discard = (DiscardMemory(saved),) if (saved := _unwanted(after)) else ()
            return state, (*record, LeaveGuest(key), *discard)
        case _:
            return state, ()


def _unwanted(held: HeldProcess) -> str:
    """Return the memory that a process was to resume from, unless it is reported as saved again; "" = none."""
    saved, farewell = held.launch.saved, held.farewell
    return "" if isinstance(farewell, ProcessSaved) and farewell.saved == saved else saved


def _forget(state: ProcessesState, held: HeldProcess) -> Handled:
    reports = () if held.farewell is None else (held.farewell,)
    return state.without(held.key), (Record(forget=held.key, reports=reports),)


def _fill(state: ProcessesState, now_s: float) -> Handled:
    """Launch processes and move them to their desired tiers, as far as these places are free."""
    taken = Counter[Place]((guest.processor, guest.tier) for guest in state.seen.values())
    instructions: list[ProcessesInstruction] = []
    for held in list(state.held.values()):
        guest, tier = state.seen.get(held.key), held.launch.tier
        if held.ending or held.farewell is not None:
            continue
        number = state.processors.get(held.processor) if guest is None else guest.processor
        if number is None:
            message = f"{held.processor} is no longer offered to gangs"
            state, steps = _refused(state, held.key, message, now_s)
            instructions += steps
        elif guest is None and not taken[number, tier]:
            taken[number, tier] += 1
            instructions.append(LaunchGuest(held.spec, number, tier))
        elif (
            guest is not None and guest.tier is not tier and (not taken[number, tier] or _exchanges(state, held, guest))
        ):
            taken[number, guest.tier] -= 1
            taken[number, tier] += 1
            instructions.append(MoveGuest(held.key, tier))
    return state, tuple(instructions)


def _exchanges(state: ProcessesState, held: HeldProcess, guest: Running) -> bool:
    """Return whether a process and the one in its target tier are to exchange their tiers."""
    others = [
        state.held.get(key)
        for key, other in state.seen.items()
        if key != held.key and (other.processor, other.tier) == (guest.processor, held.launch.tier)
    ]
    leaving = [other for other in others if other is not None and not other.ending and other.launch.tier is guest.tier]
    return len(leaving) == len(others) > 0


def _launched(state: ProcessesState, key: Key, now_s: float) -> Handled:
    held = state.held.get(key)
    if held is None:
        return state, ()
    after, _ = transition(held, Launched(), now_s)
    return state.with_held(after), (Record(keep=after, reports=(started(after, now_s),)),)


def _refused(state: ProcessesState, key: Key, message: str, now_s: float) -> Handled:
    held = state.held.get(key)
    if held is None:
        return state, ()
    after, _ = transition(held, Refused(message), now_s)
    return state.with_held(after), (EndGuest(key, after.launch.saved),)


def _ended(state: ProcessesState, key: Key) -> Handled:
    held = state.held.get(key)
    return (state, ()) if held is None or held.farewell is None else _forget(state, held)
