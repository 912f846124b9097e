"""Random walks of an agent: its invariants hold after any sequence of events, and the events can be replayed."""

from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.objects import Activity, Phase
from fpga_pool.model.messages.agents import EvictJob, FreeSlot, HoldSlot, LoadFunction, ReleaseJob, RetimeJob
from support.agent_invariants import validate

from .bench import WORKER, A, B, Machine, assign, contents, replay

JOBS, FUNCTIONS, PROJECTS, INSTANCES = ("j", "k", "l"), ("f", "g"), ("p", "q"), ("vm", "vn")
SLOTS = (A, B, WORKER)


class Walk(Machine):
    """The state machine with simulated executors and a simulated disk."""

    def __init__(self, data):
        super().__init__()
        self._data = data
        self.inputs = set()
        self.recording = ()
        self._attempts = dict.fromkeys(JOBS, 0)

    def pick(self, choices):
        return self._data.draw(st.sampled_from(choices))

    def feed(self, event):
        """Handle an event; sometimes handle it, undo it and handle it again."""
        if not isinstance(event, e.Restarted) and self._data.draw(st.integers(0, 9)) == 0:
            before = contents(self.state)
            self.agent.handle(event, self.now_s)
            self.agent.undo()
            self.log.append((event, self.now_s, None))
            validate(self.state)
            assert contents(self.state) == before
        instructions = super().feed(event)
        for one in instructions:
            if isinstance(one, i.DeleteFiles | i.DeleteInput):
                self.inputs.discard(one.job)
        return instructions

    def action(self):
        job = self.pick(JOBS)
        match self.pick(("assign", "assign", "assign", "release", "evict", "retime", "hold", "free", "ahead")):
            case "assign":
                self._attempts[job] += 1
                more = {"function": self.pick(FUNCTIONS), "project_id": self.pick(PROJECTS)}
                return assign(job, attempt=self._attempts[job], order=self.pick((0, 1)), **more)
            case "release":
                return ReleaseJob(job=job)
            case "evict":
                return EvictJob(job=job, attempt=max(self._attempts[job], 1), keep_progress=True)
            case "retime":
                return RetimeJob(job=job, attempt=self._attempts[job], dispatched_at=self.now_s, transfer=())
            case "hold":
                return HoldSlot(
                    instance=self.pick(INSTANCES), project_id="p", function=self.pick(FUNCTIONS), lease_epoch=1
                )
            case "free":
                return FreeSlot(instance=self.pick(INSTANCES), lease_epoch=1)
        return LoadFunction(function=self.pick(FUNCTIONS), replaces=self.pick(("", *FUNCTIONS)))

    def step(self):
        self.now_s += self._data.draw(st.floats(0.0, 20.0))
        match self.pick(("commands", "input", "slot", "slot", "slot", "slot", "ends", "delivered", "time")):
            case "commands":
                commands = [self.command(self.action(), self.pick(SLOTS)) for _ in range(self.pick((1, 2, 3)))]
                running = {uuid: 0.5 for uuid, job in self.state.jobs.items() if job.phase is Phase.RUNNING}
                self.execute(*commands, inputs=frozenset(self.inputs), progress=running)
            case "input":
                self.arrive(self.pick(JOBS))
            case "slot":
                self.move(self.pick(SLOTS), goes_well=self.pick((True, True, True, False)))
            case "ends":
                self.record_or_lose(durable=self.pick((True, True, False)))
            case "delivered":
                job = self.pick(JOBS)
                self.feed(e.ResultsDelivered(attempts=((job, self._attempts[job]),)))
            case "time":
                self.feed(e.TimePassed())

    def arrive(self, job):
        if job in self.state.jobs and self.state.jobs[job].phase is Phase.WAITING:
            self.inputs.add(job)
            small = self.pick((True, False))
            self.feed(e.SmallInputsArrived(jobs=(job,)) if small else e.InputArrived(job=job))

    def record_or_lose(self, *, durable):
        """Begin to record job ends, or complete the recording that an earlier call began."""
        if self.recording:
            self.feed((e.EndsRecorded if durable else e.EndsLost)(jobs=self.recording))
            self.recording = ()
        else:
            self.recording = tuple(one.job for one in self.feed(e.EndsDue()) if isinstance(one, i.KeepJob))

    def move(self, slot, *, goes_well):
        """Simulate one step of the executor of a slot."""
        hand = self.hands[slot]
        if not hand:
            asks = self.state.slots[slot].asks
            assert asks, f"the executor of {slot} has nothing to do, and may not ask"
            seen = e.CardSeen(slot=slot, present=goes_well, function=self.state.slots[slot].function)
            self.feed(e.SlotFree(slot=slot) if self.pick((True, True, False)) else seen)
            return
        done = hand.popleft()
        match done:
            case i.LoadSlot():
                failed = self.pick(
                    (e.LoadFailed(slot=slot, reason="r"), e.LoadRefused(slot=slot, code="c", message="m"))
                )
                self.feed(e.Loaded(slot=slot) if goes_well else failed)
            case i.ScrubSlot():
                self.feed(e.Scrubbed(slot=slot) if goes_well else e.ScrubFailed(slot=slot, reason="r"))
            case i.Compute(job=job):
                if goes_well:
                    self.end(job.uuid, slot, job.attempt)
                else:
                    self.fail(job.uuid, slot, job.attempt, slot_failed=self.pick((True, False)))
            case i.CheckCard():
                self.feed(e.CardSeen(slot=slot, present=goes_well, function=self.state.slots[slot].function))

    def come_to_rest(self):
        """Let everything succeed from now on, until nothing more happens."""
        for _ in range(300):
            before, busy = len(self.log), bool(self.recording or self.state.ended or any(self.hands.values()))
            for job in JOBS:
                self.arrive(job)
            if self.recording or self.state.ended:
                self.record_or_lose(durable=True)
            for slot in SLOTS:
                if self.hands[slot]:
                    self.move(slot, goes_well=True)
                else:
                    self.feed(e.SlotFree(slot=slot))
            if not busy and not any(them for _, _, them in self.log[before:]):
                return
        raise AssertionError("the agent does not come to rest")


@given(st.data())
def test_an_agent_keeps_its_invariants_and_ends_its_work_and_a_replay_goes_the_same_way(data):
    walk = Walk(data)
    for _ in range(data.draw(st.integers(1, 40))):
        walk.step()
    walk.come_to_rest()
    held = {slot for slot, hold in walk.state.holds.items() if not hold.ready}
    assert not held
    for job in walk.state.jobs.values():
        assert job.phase in (Phase.HELD, Phase.FAILED) or job.slot in walk.state.holds
    for slot in walk.state.slots.values():
        assert slot.activity is (Activity.LENT if slot.name in walk.state.holds else Activity.FREE)
    again, said = replay(walk.log)
    assert said == [instructions for _, _, instructions in walk.log if instructions is not None]
    assert contents(again.state) == contents(walk.state)
