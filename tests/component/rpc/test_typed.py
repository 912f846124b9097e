"""The arguments with which methods of an endpoint are called from outside."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import pytest

from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.agents import Command, Outcome, ReleaseJob
from fpga_pool.model.objects.pool import Slot
from fpga_pool.rpc.transport import typed

COMMAND = Command(id="c", shard="s", epoch=1, host="h", slot="h/0/0", sequence=2, action=ReleaseJob(job="j"))
PLAIN = {"id": "c", "shard": "s", "epoch": 1, "host": "h", "slot": "h/0/0", "sequence": 2,
         "action": {"type": "ReleaseJob", "job": "j"}}  # fmt: skip


class Endpoint:
    @typed
    def ask(
        self,
        context: dict[str, Any],
        host: str,
        epoch: int,
        wait_s: float,
        names: Sequence[str],
        commands: list[Command],
        seen: Mapping[str, int] | None,
        packed: bool = False,
    ) -> list[Outcome]:
        assert all(command == COMMAND for command in commands)
        return [Outcome(command=host, outcome=f"{epoch} {packed}") for _ in commands]  # fmt: skip


GOOD = {"host": "h", "epoch": 1, "wait_s": 0.5, "names": ["n"], "commands": [PLAIN], "seen": None}


@pytest.mark.parametrize("change", [{}, {"wait_s": 2}, {"seen": {"s": 1}}, {"names": []}])
def test_what_fits_reaches_the_method_and_its_answer_is_plain(change):
    assert Endpoint().ask({}, **GOOD | change) == [{"command": "h", "outcome": "1 False", "reason": ""}]


@pytest.mark.parametrize(
    "change",
    [
        {"host": "a\nforged"},
        {"host": "a\x1b[2J"},
        {"host": "a\0"},
        {"host": "a" * 256},
        {"names": ["a\nforged"]},
        {"names": ["n"] * 100_001},
        {"seen": {"s": 2**63}},
        {"seen": {"s": -1}},
        {"seen": {"s\0": 1}},
    ],
    ids=lambda change: repr(change)[:20],
)
def test_values_without_bounds_of_their_own_have_some_within_lists_and_mappings_too(change):
    with pytest.raises(InvalidInput):
        Endpoint().ask({}, **GOOD | change)


def test_what_has_a_default_may_be_missing():
    assert Endpoint().ask({}, **GOOD, packed=True)[0]["outcome"] == "1 True"
    with pytest.raises(InvalidInput, match=r"^ask\.packed: expected `bool`, got `int`, found 1$"):
        Endpoint().ask({}, **GOOD, packed=1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "ask: missing: host, epoch, wait_s, names, commands, seen"),
        (GOOD | {"force": True}, "ask: unknown: ['force']; known: host, epoch, wait_s, names, commands, seen, packed"),
        (GOOD | {"host": 7}, "ask.host: expected at most 255 characters, no control characters, found 7"),
        (GOOD | {"host": None}, "ask.host: expected at most 255 characters, no control characters, found None"),
        (GOOD | {"epoch": "1"}, "ask.epoch: expected a number of at least 0, found '1'"),
        (GOOD | {"epoch": True}, "ask.epoch: expected a number of at least 0, found True"),
        (
            GOOD | {"host": "h" * 256},
            f"ask.host: expected at most 255 characters, no control characters, found 'h{'h' * 55}...",
        ),
        (GOOD | {"epoch": -1}, "ask.epoch: expected 0 to 4611686018427387904, found -1"),
        (GOOD | {"epoch": 2**63}, "ask.epoch: expected 0 to 4611686018427387904, found 9223372036854775808"),
        (GOOD | {"wait_s": 1e300}, "ask.wait_s: expected 0 to 1000000000.0, found 1e+300"),
        (GOOD | {"epoch": 1.0}, "ask.epoch: expected a number of at least 0, found 1.0"),
        (GOOD | {"names": "n"}, "ask.names: expected `array`, got `str`, found 'n'"),
        (GOOD | {"commands": {}}, "ask.commands: expected `array`, got `object`, found {}"),
        (GOOD | {"commands": [{}]}, "ask.commands[0]: missing: id, shard, epoch, host, slot, sequence, action"),
        (GOOD | {"seen": [1]}, "ask.seen: expected `object | null`, got `array`, found [1]"),
        (GOOD | {"seen": {"s": None}}, "ask.seen[...]: expected `int`, got `null`"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(arguments, complaint):
    with pytest.raises(InvalidInput) as caught:
        Endpoint().ask({}, **arguments)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"colour": "red"}, r"^slots\[0\]: unknown: \['colour'\]; known: name, "),
        ({"loaded_at": nan}, r"^slots\[0\]\.loaded_at: "),
        ({"reconfigurations": None}, r"^slots\[0\]\.reconfigurations: expected `int`, got `null`"),
    ],
)
def test_objects_in_an_answer_are_read_as_strictly(change, complaint):
    slot = Slot(name="h/0/0", host="h", card="0", region="0", board="b", kind="k")
    assert read(list[Slot], [to_plain(slot)], "slots") == [slot]
    with pytest.raises(InvalidInput, match=complaint):
        read(list[Slot], [to_plain(slot) | change], "slots")
