import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the documentation's extra is not installed")
sys.path.insert(0, str(Path(__file__).parents[3] / "doc" / "source" / "_ext"))
import transitions as page


@pytest.mark.parametrize("noun", page.SAMPLES)
def test_every_rule_of_the_code_is_on_the_page(noun):
    table = page.SAMPLES[noun][0]
    shown = {(state, event.split(" ")[0]) for state, event, _, _ in page.transitions(noun)}
    assert shown == {(str(state), event.__name__) for state, event in table.rules}


def test_rows_tell_apart_what_depends_on_more_than_the_state():
    # After a retryable failure the job is planned again; other failures end it.  A cancelled job never returns.
    rows = page.transitions("job")
    ends = {after for state, event, after, _ in rows if state == "RUNNING" and event.startswith("JobFailed")}
    assert ends == {"PENDING", "FAILED", "CANCELLED"}
    assert ("RUNNING", "JobFailed (retryable)", "PENDING", "") in rows


def test_a_lease_has_one_change_of_state():
    assert page.transitions("lease") == [
        ("HELD", "LeaseBroken", "HELD", ""),
        ("HELD", "LeaseRestored", "HELD", ""),
        ("HELD", "LeaseReleased", "RELEASED", ""),
    ]
