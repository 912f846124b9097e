"""The events that an object remembers, and the requests that caused them."""

from fpga_pool.model.lifecycle.batch import BATCH, BatchBegun, JobEnded
from fpga_pool.model.lifecycle.slot import SLOT, DrainRequested, ResumeRequested
from fpga_pool.model.messages.agents import SlotChanged
from fpga_pool.model.objects.history import HISTORY_LENGTH, LONGEST_EVENT_REASON, Cause, caused_by, created, with_event
from fpga_pool.model.objects.pool import Batch, JobState, Slot, SlotState

BATCH_OF_100 = Batch(
    uuid="b", project_id="p", user_id="u", name="", policy="ect", created_at=1.0, jobs=100,
    history=created(1.0, "PENDING"),
)  # fmt: skip
EMPTY = Slot(name="h/c/r", host="h", card="c", region="r", board="b", kind="k", history=created(1.0, "EMPTY"))


def steps(thing):
    return [(entry.event, entry.before, entry.after) for entry in thing.history]


def test_events_are_numbered_from_the_creation_on():
    slot, _ = SLOT.transition(EMPTY, DrainRequested(reason="loud fan"), 2.0)
    slot, _ = SLOT.transition(slot, ResumeRequested(), 3.0)
    assert steps(slot) == [
        ("Created", "", "EMPTY"), ("DrainRequested", "EMPTY", "EMPTY"), ("ResumeRequested", "EMPTY", "EMPTY"),
    ]  # fmt: skip
    assert [(entry.number, entry.at, entry.reason) for entry in slot.history] == [
        (0, 1.0, ""), (1, 2.0, "loud fan"), (2, 3.0, ""),
    ]  # fmt: skip


def test_jobs_that_end_do_not_displace_how_their_batch_began():
    batch, _ = BATCH.transition(BATCH_OF_100, BatchBegun(dispatched_at=2.0), 2.0)
    for at in range(100):
        batch, _ = BATCH.transition(batch, JobEnded(state=JobState.RESULT_HELD), 3.0 + at)
    assert steps(batch)[:2] == [("Created", "", "PENDING"), ("BatchBegun", "PENDING", "RUNNING")]
    assert steps(batch)[-1] == ("JobEnded", "RUNNING", "COMPLETED")
    # Created, BatchBegun, and 100 ended jobs: the last one and the latest 21 of the others remain.
    assert [entry.number for entry in batch.history] == [0, 1, *range(80, 102)]


def test_work_of_a_slot_does_not_displace_its_fault():
    slot = EMPTY
    for at in range(40):
        state = {3: SlotState.FAULTED}.get(at, SlotState.BUSY if at % 2 else SlotState.READY)
        reason = "it smokes" if state is SlotState.FAULTED else ""
        slot, _ = SLOT.transition(slot, SlotChanged(slot=slot.name, at=0.0, state=state, reason=reason), 2.0 + at)
    assert len(slot.history) == HISTORY_LENGTH
    assert [entry.at for entry in slot.history if entry.reason == "it smokes"] == [5.0]


def test_where_no_event_is_like_another_the_oldest_is_forgotten():
    history = created(0.0, "A")
    for number in range(HISTORY_LENGTH):
        history = with_event(history, 1.0, f"Event{number}", "A", "A")
    assert [entry.event for entry in history] == [f"Event{number}" for number in range(HISTORY_LENGTH)]


def test_the_reason_of_an_event_is_cut_and_not_that_of_the_object():
    slot, _ = SLOT.transition(EMPTY, DrainRequested(reason="x" * 1000), 2.0)
    assert (len(slot.reason), slot.history[-1].reason) == (1000, "x" * LONGEST_EVENT_REASON)


def test_a_request_causes_the_events_since_the_object_was_read_and_no_others():
    before = caused_by(Cause("req-1"), EMPTY)
    after, _ = SLOT.transition(before, DrainRequested(reason=""), 2.0)
    after, _ = SLOT.transition(after, ResumeRequested(), 3.0)
    assert [entry.request_id for entry in caused_by(Cause("req-2"), after, before).history] == [
        "req-1",
        "req-2",
        "req-2",
    ]
    assert caused_by(Cause("req-2"), before, before) is before
