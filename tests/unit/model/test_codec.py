"""Messages are decoded as they were encoded, and everything else is refused."""

import json
from math import inf, nan
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.codec import Message, from_text, read, to_plain, to_text
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import (
    Action,
    AssignJob,
    Command,
    Heartbeat,
    JobFinished,
    ObservedSlot,
    ReleaseJob,
    Report,
    ShapeFlow,
    SlotChanged,
)
from fpga_pool.model.messages.gangs import ObservedProcess, ObservedProcessor
from fpga_pool.model.objects.pool import Host, RateSegment, SlotState
from fpga_pool.model.values import field_names

COMMAND = Command(id="c", shard="s", epoch=1, host="h", slot="h/0/0", sequence=2, action=ReleaseJob(job="j"))
SLOT = ObservedSlot(slot="h/0/0", card="0", region="0", board="vc709", kind="small", state=SlotState.BUSY, job="j")
HEARTBEAT = Heartbeat(
    host="h", agent_id="a", boot=2, beat=7, at=1.5, egress_bps=inf, ingress_bps=1e9, data_address="::1", data_port=1,
    slots=(SLOT,), jobs=(), processors=(ObservedProcessor(processor="h/pcpu/1", number=1, sequence=3),),
    processes=(
        ObservedProcess(gang="g", index=0, attempt=1, processor="h/pcpu/1", tier=Tier.BACKGROUND, done_s=0.1, rate=0.5),
    ),
)  # fmt: skip
OBSERVED = to_plain(SLOT)


def altered(message, **fields):
    return to_plain(message) | fields


@pytest.mark.parametrize("message", [COMMAND, HEARTBEAT], ids=lambda message: type(message).__name__)
def test_messages_within_messages_come_back_equal_through_json(message):
    assert read(type(message), json.loads(json.dumps(to_plain(message)))) == message


#: Infinity is accepted, NaN is not.
NUMBERS = st.floats(allow_nan=False, min_value=-1e300)
SEGMENTS = st.lists(st.builds(RateSegment, NUMBERS, NUMBERS, NUMBERS), max_size=2).map(tuple)


IDS = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=255)
COUNTS = st.integers(0, 2**62)
MOMENTS = st.floats(0, 253402300799)


@given(
    st.builds(
        AssignJob, job=IDS, attempt=COUNTS, project_id=TEXTS, function=TEXTS, input_bytes=COUNTS, order=COUNTS,
        expected_s=NUMBERS, done=st.floats(0, 1), dispatched_at=NUMBERS, transfer=SEGMENTS, result_transfer=SEGMENTS,
    )
)  # fmt: skip
def test_any_action_comes_back_equal_from_its_text(action):
    assert from_text(Action, to_text(action)) == action


@given(st.builds(SlotChanged, slot=TEXTS, at=MOMENTS, function=TEXTS, job=IDS | st.just(""), reason=TEXTS))
def test_any_report_comes_back_equal_from_its_text(report):
    assert from_text(Report, to_text(report)) == report


def test_objects_without_a_limit_come_back_without_one():
    host = Host(
        name="h", egress_bps=inf, ingress_bps=1e9, data_address="::1", data_port=1, heard_at=0.0, agent_id="secret"
    )
    assert read(list[Host], json.loads(json.dumps(to_plain([host])))) == [host]


def test_a_message_names_its_class_where_it_could_be_another():
    assert to_plain(COMMAND)["action"] == {"type": "ReleaseJob", "job": "j"}
    assert "type" not in OBSERVED  # the class follows from the field


def test_a_whole_number_will_do_for_a_float():
    found = read(SlotChanged, altered(SlotChanged(slot="s", at=1.0, state=SlotState.READY), at=3))
    assert found.at == 3.0
    assert isinstance(found.at, float)


def test_a_field_with_a_default_may_be_missing():
    plain = {"type": "SlotChanged", "slot": "s", "at": 1.0, "state": "READY"}
    assert read(Report, plain) == SlotChanged(slot="s", at=1.0, state=SlotState.READY)


@pytest.mark.parametrize(
    ("kind", "plain", "complaint"),
    [
        (Action, [], "message: expected `object`, got `array`, found []"),
        (Action, {}, "message: missing: type"),
        (Action, {"type": "Reboot"}, "message.type: invalid value 'Reboot'"),
        (Action, {"type": ["ReleaseJob"]}, "message.type: expected `str`, got `list`, found ['ReleaseJob']"),
        (Action, {"type": "ReleaseJob"}, "message: missing: job"),
        (Action, {"type": "ReleaseJob", "job": "j", "force": True}, "message: unknown: force"),
        (Action, {"type": "ReleaseJob", "job": 7}, "message.job: expected `str`, got `int`, found 7"),
        (Action, {"type": "ReleaseJob", "job": None}, "message.job: expected `str`, got `null`, found None"),
        (Action, {7: "x", "type": "ReleaseJob", "job": "j"}, "message: expected `str`"),
        (Command, altered(COMMAND, epoch=True), "message.epoch: expected a number of at least 0, found True"),
        (Command, altered(COMMAND, epoch=1.0), "message.epoch: expected a number of at least 0, found 1.0"),
        (Command, altered(COMMAND, action=to_plain(HEARTBEAT)), "message.action: missing: type"),
        (Heartbeat, altered(HEARTBEAT, at=nan), "message.at: expected 0 to 253402300799, found nan"),
        (Heartbeat, altered(HEARTBEAT, at="1.5"), "message.at: expected UTC seconds since the epoch, found '1.5'"),
        (Heartbeat, altered(HEARTBEAT, egress_bps=None), "message.egress_bps: expected bits per second, at least 1"),
        (Heartbeat, altered(HEARTBEAT, slots=["h/0/0"]), "message.slots[0]: expected `object`, got `str`, found 'h/0"),
        (Heartbeat, altered(HEARTBEAT, slots=[{}]), "message.slots[0]: missing: slot"),
        (Heartbeat, altered(HEARTBEAT, slots={}), "message.slots: expected `array`, got `object`, found {}"),
        (Heartbeat, altered(HEARTBEAT, slots=[OBSERVED | {"state": "LOST"}]), "message.slots[0].state: invalid enum"),
        (dict[str, int], {"s": "1"}, "message[...]: expected `int`, got `str`"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(kind, plain, complaint):
    with pytest.raises(InvalidInput) as caught:
        read(kind, plain)
    assert str(caught.value).startswith(complaint)


def test_little_is_repeated_of_what_is_refused():
    with pytest.raises(InvalidInput) as caught:
        read(Command, altered(COMMAND, epoch="x" * 10_000))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", [None, "", "{", '{"type":"Reboot"}'])
def test_text_that_is_no_action_is_refused(text):
    with pytest.raises(InvalidInput):
        from_text(Action, text)


@pytest.mark.parametrize("kind", [*get_args(Action), *get_args(Report)], ids=lambda kind: kind.__name__)
def test_every_action_and_report_names_its_class(kind):
    assert kind.__struct_config__.tag == kind.__name__
    assert "type" not in field_names(kind)


def test_an_optional_field_takes_nothing_or_its_type():
    class Note(Message, frozen=True, kw_only=True):
        text: str | None

    assert read(Note, {"text": None}) == Note(text=None)
    with pytest.raises(InvalidInput, match=r"text: expected `str \| null`, got `int`"):
        read(Note, {"text": 1})


FINISHED = to_plain(
    JobFinished(
        job="j", attempt=1, at=1.0, compute_s=1.0, result_bytes=1, result_sha256="0" * 64, transfer_began_at=0.5,
        staged_at=1.0,
    )
)  # fmt: skip
SHAPED = to_plain(
    ShapeFlow(
        job="j", attempt=1, source_address="::1", source_port=1, destination_address="::2", destination_port=1,
        dispatched_at=0.0, transfer=(),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "plain", "field", "bad"),
    [
        (Action, to_plain(ReleaseJob(job="j")), "job", ["../../victim.txt", "a/b", ".", "j\n", "j" * 65, "j\0"]),
        (Action, SHAPED, "job", ["..", ""]),
        (Action, SHAPED, "source_address", ["999.999.999.999", "ffff", "::::::", "", "localhost"]),
        (Action, SHAPED, "source_port", [0, -1, 65536]),
        (Action, SHAPED, "attempt", [-1, 2**63]),
        (Report, FINISHED, "at", [1e300, -1.0, inf, 253402300800]),
        (Report, FINISHED, "staged_at", [1e300, inf]),
        (Report, FINISHED, "transfer_began_at", [-1.0, 1e300, inf]),
        (Report, FINISHED, "compute_s", [inf, -1.0, 1e300]),
        (Report, FINISHED, "result_bytes", [-5, 2**63]),
        (Report, FINISHED, "result_sha256", ["zz", "0" * 63, "0" * 64 + "\n", "A" * 64]),
        (Heartbeat, to_plain(HEARTBEAT), "host", ["h" * 256, "a\nb"]),
        (Heartbeat, to_plain(HEARTBEAT), "beat", [-1, 2**64]),
        (Heartbeat, to_plain(HEARTBEAT), "ingress_bps", [-1.0]),
        (Heartbeat, to_plain(HEARTBEAT), "data_port", [65536]),
        (ObservedSlot, OBSERVED, "reason", ["x" * 4097]),
    ],
)
def test_values_outside_the_bounds_of_their_fields_are_refused(kind, plain, field, bad):
    read(kind, plain)
    for value in bad:
        with pytest.raises(InvalidInput, match=rf"message(\.{field})?: .*(expected|`)"):
            read(kind, plain | {field: value})


def test_what_is_nested_deeply_or_very_long_is_refused_in_few_words():
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    for plain in (deep, {"job": deep}, ["x" * 10**7] * 3):
        with pytest.raises(InvalidInput) as refused:
            read(JobFinished, plain)
        assert len(str(refused.value)) < 200
    with pytest.raises(InvalidInput, match="nested too deeply"):
        from_text(Report, "[" * 100_000)


def test_a_field_whose_name_cannot_be_encoded_is_refused():
    """Found by fuzzing: JSON can encode half of a surrogate pair."""
    with pytest.raises(InvalidInput, match="message: half of a surrogate pair"):
        read(Command, to_plain(COMMAND) | {"\ud800": None})
