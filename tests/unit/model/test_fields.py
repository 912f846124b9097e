"""The values that the types of fields accept."""

import math

import pytest

from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.fields import Reason, ResultBytes, Seconds, Text, short_reason
from fpga_pool.model.rest import date


@pytest.mark.parametrize("text", ["two\nlines\r", "\ud800", "x" * 5000, "\x1b[31mred\0", "", "a\x85b\u2028c\u202ed"])
def test_of_any_text_a_reason_is_made_that_is_one_line(text):
    reason = short_reason(text)
    assert read(Reason, reason) == reason
    assert len(reason.splitlines()) <= 1


@pytest.mark.parametrize(
    ("wanted", "value"),
    [(Reason, "x\n2026-01-01 CRITICAL forged"), (Seconds, 1e308), (Seconds, 0.0), (ResultBytes, 2**63 - 1)],
)
def test_what_would_do_harm_later_is_refused(wanted, value):
    with pytest.raises(InvalidInput):
        read(wanted, value)


@pytest.mark.parametrize("mark", "\x80\x85\x9f\u2028\u2029\u202a\u202e\u2066\u2069")
def test_a_text_has_no_marks_that_change_how_it_is_read(mark):
    for wanted in (Text, Reason):
        with pytest.raises(InvalidInput, match="no control characters"):
            read(wanted, f"a{mark}b")


@pytest.mark.parametrize("at", [1e12, 1e300, math.inf])
def test_a_moment_that_no_calendar_has_is_shown_as_the_last_one(at):
    assert date(at) == "9999-12-31T23:59:59.000000+00:00"
