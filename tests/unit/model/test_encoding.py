"""Messages cross the wire unchanged, and nothing else does."""

import json
from dataclasses import dataclass, fields
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.encoding import ACTIONS, TAG, from_plain, kinds, to_plain
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import Tier
from fpga_pool.model.gang_messages import (
    LaunchProcess,
    ObservedProcess,
    ObservedProcessor,
    SaveProcess,
    SetTier,
    StopProcess,
)
from fpga_pool.model.messages import (
    AssignJob,
    Command,
    EvictJob,
    FreeSlot,
    Heartbeat,
    HoldSlot,
    JobFinished,
    LoadFunction,
    ObservedSlot,
    ReleaseFlow,
    ReleaseJob,
    RetimeJob,
    ShapeFlow,
    SlotChanged,
)
from fpga_pool.model.objects import SlotState

MESSAGES = kinds(AssignJob, ReleaseJob, Command, Heartbeat, JobFinished, SlotChanged)

COMMAND = Command(id="c", shard="s", epoch=1, host="h", slot="h/0/0", sequence=2, action=ReleaseJob(job="j"))
SLOT = ObservedSlot(slot="h/0/0", card="0", region="0", board="vc709", kind="small", state=SlotState.BUSY, job="j")
HEARTBEAT = Heartbeat(
    host="h", agent_id="a", boot=2, beat=7, at=1.5, egress_bps=inf, ingress_bps=1e9, data_address="::1", data_port=1,
    slots=(SLOT,), jobs=(), processors=(ObservedProcessor(processor="h/pcpu/1", number=1, sequence=3),),
    processes=(
        ObservedProcess(gang="g", index=0, attempt=1, processor="h/pcpu/1", tier=Tier.BACKGROUND, done_s=0.1, rate=0.5),
    ),
)  # fmt: skip


def altered(message, **fields):
    return to_plain(message) | fields


OBSERVED = to_plain(HEARTBEAT)["slots"][0]


@pytest.mark.parametrize("message", [COMMAND, HEARTBEAT], ids=lambda message: type(message).__name__)
def test_messages_within_messages_come_back_equal_through_json(message):
    assert from_plain(MESSAGES, json.loads(json.dumps(to_plain(message)))) == message


NUMBERS = st.floats(allow_nan=False)


@given(st.builds(AssignJob, expected_s=NUMBERS) | st.builds(SlotChanged, at=NUMBERS) | st.builds(ReleaseJob))
def test_any_message_comes_back_equal_through_json(message):
    assert from_plain(MESSAGES, json.loads(json.dumps(to_plain(message)))) == message


def test_a_message_names_its_class_where_it_could_be_another():
    assert to_plain(COMMAND)["action"] == {"type": "ReleaseJob", "job": "j"}
    assert TAG not in OBSERVED  # nothing else could be there


def test_a_whole_number_will_do_for_a_float():
    found = from_plain(MESSAGES, altered(SlotChanged(slot="s", at=1.0, state=SlotState.READY), at=3))
    assert found.at == 3.0
    assert isinstance(found.at, float)


def test_a_field_with_a_default_may_be_missing():
    plain = {"type": "SlotChanged", "slot": "s", "at": 1.0, "state": "READY"}
    assert from_plain(MESSAGES, plain) == SlotChanged(slot="s", at=1.0, state=SlotState.READY)


@pytest.mark.parametrize(
    ("plain", "complaint"),
    [
        ([], "message: expected an object, found []"),
        ({}, "message.type: expected one of AssignJob, Command, .*, found None"),
        ({"type": "Reboot"}, "message.type: expected one of .*, found 'Reboot'"),
        ({"type": ["ReleaseJob"]}, "message.type: expected one of"),
        ({"type": "ReleaseJob"}, "message.job: missing of ReleaseJob"),
        ({"type": "ReleaseJob", "job": "j", "force": True}, "message.force: unknown field of ReleaseJob"),
        ({"type": "ReleaseJob", "job": 7}, "message.job: expected a text, found 7"),
        ({"type": "ReleaseJob", "job": None}, "message.job: expected a text, found None"),
        (altered(COMMAND, epoch=True), "message.epoch: expected an integer, found True"),
        (altered(COMMAND, epoch=1.0), "message.epoch: expected an integer, found 1.0"),
        (altered(COMMAND, action=to_plain(COMMAND)), "message.action.type: expected one of AssignJob, EvictJob"),
        (altered(HEARTBEAT, at=nan), "message.at: expected a number, found nan"),
        (altered(HEARTBEAT, at="1.5"), "message.at: expected a number, found '1.5'"),
        (altered(HEARTBEAT, slots=["h/0/0"]), r"message.slots\[0\]: expected an object, found 'h/0/0'"),
        (altered(HEARTBEAT, slots=[{}]), r"message.slots\[0\].board: missing of ObservedSlot"),
        (altered(HEARTBEAT, slots={}), "message.slots: expected a list, found {}"),
        (altered(HEARTBEAT, slots=[OBSERVED | {"state": "ON FIRE"}]), r"message.slots\[0\].state: expected one of"),
        (altered(HEARTBEAT, slots=[OBSERVED | {"state": ["BUSY"]}]), r"message.slots\[0\].state: expected one of"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(plain, complaint):
    with pytest.raises(InvalidInput, match=complaint.replace("[]", r"\[\]")):
        from_plain(MESSAGES, plain)


@pytest.mark.parametrize("cls", [*MESSAGES.values(), ObservedSlot], ids=lambda cls: cls.__name__)
def test_no_message_has_a_field_called_as_its_class_tag(cls):
    assert TAG not in {field.name for field in fields(cls)}


def test_the_outbox_knows_every_action():
    assert set(ACTIONS.values()) == {
        AssignJob,
        RetimeJob,
        ReleaseJob,
        EvictJob,
        ShapeFlow,
        ReleaseFlow,
        HoldSlot,
        FreeSlot,
        LoadFunction,
        LaunchProcess,
        SetTier,
        SaveProcess,
        StopProcess,
    }


def test_an_optional_field_takes_nothing_or_its_type():
    @dataclass
    class Note:
        text: str | None

    assert from_plain(kinds(Note), {"type": "Note", "text": None}) == Note(None)
    with pytest.raises(InvalidInput, match="text: expected a text"):
        from_plain(kinds(Note), {"type": "Note", "text": 1})
