import re
from dataclasses import dataclass

import pytest

from fpga_pool.core.parameters import Parameters, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Example(Parameters):
    jobs: int = parameter(1, "", min=1)
    wait_s: float = parameter(1.0, "", above=0.0)
    share: float = parameter(0.5, "", min=0.0, max=1.0)
    gap: float = parameter(0.0, "", min=0.0, below=1.0)
    order: str = parameter("first", "", choices=("first", "last"))
    guard: bool = parameter(False, "")


def test_accepts_what_is_within_all_limits():
    Example(jobs=7, wait_s=0.1, share=1.0, gap=0.99, order="last", guard=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"jobs": 0}, "jobs: expected a whole number, 1 or more, got 0"),
        ({"jobs": 1.5}, "jobs: expected a whole number, 1 or more, got 1.5"),
        ({"wait_s": 0.0}, "wait_s: expected seconds, above 0, got 0.0"),
        ({"wait_s": float("inf")}, "wait_s: expected seconds, above 0, got inf"),
        ({"share": float("nan")}, "share: expected a number, 0 or more, 1 at most, got nan"),
        ({"share": 1.1}, "share: expected a number, 0 or more, 1 at most, got 1.1"),
        ({"gap": 1.0}, "gap: expected a number, 0 or more, below 1, got 1.0"),
        ({"order": "any"}, "order: expected one of first, last, got 'any'"),
    ],
)
def test_says_what_a_parameter_beyond_its_limits_should_be(values, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Example(**values)
