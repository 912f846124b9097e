"""What a method of an endpoint is called with from outside."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.rpc.arguments import checked


class Endpoint:
    @checked
    def ask(
        self,
        context: dict[str, Any],
        host: str,
        epoch: int,
        wait_s: float,
        names: Sequence[str],
        commands: list[dict[str, Any]],
        seen: Mapping[str, int] | None,
        packed: bool = False,
    ) -> str:
        return f"{host} {epoch} {packed}"  # fmt: skip


GOOD = {"host": "h", "epoch": 1, "wait_s": 0.5, "names": ["n"], "commands": [], "seen": None}


@pytest.mark.parametrize("change", [{}, {"wait_s": 2}, {"seen": {"s": 1}}, {"names": []}])
def test_what_fits_reaches_the_method(change):
    assert Endpoint().ask({}, **GOOD | change) == "h 1 False"


def test_what_the_release_before_did_not_tell_has_a_default():
    assert Endpoint().ask({}, **GOOD, packed=True) == "h 1 True"
    with pytest.raises(InvalidInput, match=r"^ask\.packed: 1 is of another type than expected$"):
        Endpoint().ask({}, **GOOD, packed=1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "ask.commands: missing"),
        (GOOD | {"force": True}, "ask.force: unknown argument"),
        (GOOD | {"host": 7}, "ask.host: 7 is of another type than expected"),
        (GOOD | {"host": None}, "ask.host: None is of another type than expected"),
        (GOOD | {"epoch": "1"}, "ask.epoch: '1' is of another type than expected"),
        (GOOD | {"epoch": True}, "ask.epoch: True is of another type than expected"),
        (GOOD | {"epoch": 1.0}, "ask.epoch: 1.0 is of another type than expected"),
        (GOOD | {"names": "n"}, "ask.names: 'n' is of another type than expected"),
        (GOOD | {"commands": {}}, "ask.commands: {} is of another type than expected"),
        (GOOD | {"seen": [1]}, r"ask.seen: \[1\] is of another type than expected"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(arguments, complaint):
    with pytest.raises(InvalidInput, match=f"^{complaint}$"):
        Endpoint().ask({}, **arguments)
