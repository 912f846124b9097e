"""The steps of the planning cycle, with a minimal family."""

from contextlib import contextmanager

import numpy as np
import pytest

from fpga_pool.model.cycle import RETRY_S, Cycle, CycleSnapshot, Decision, Durations, Outcome, PolicyFailure


class Named:
    name = "by hand"


class Counting:
    """A family that makes one more change in each cycle, up to `most`."""

    name, waits = "counting", False

    def __init__(self, most=1):
        self.done, self._most, self.errors = 0, most, []

    def snapshot(self, tx, now_s):
        return CycleSnapshot(view=self.done, policy=Named(), now_s=now_s) if self.done < self._most else None

    def decide(self, look, state, rng):
        if self.errors:
            raise self.errors.pop()
        return Decision(wanted=look.view + 1)

    def commit(self, tx, look, wanted, now_s):
        self.done = wanted
        return Outcome(changed=True, again=wanted < self._most, summary=f"{wanted} done")


class Shell:
    """A cycle with a log of its steps; every reading of the timer takes one second."""

    def __init__(self, family):
        self.history, self.now_s, self._ticks = [], 100.0, 0
        self.cycle = Cycle(
            family,
            reading=lambda: self._transaction("read"),
            transactions=lambda: self._transaction("write"),
            dispatch=lambda: self.history.append("dispatch"),
            clock=lambda: self.now_s,
            timer=self._tick,
            rng=np.random.default_rng(0),
        )

    def _tick(self):
        self._ticks += 1
        return float(self._ticks)

    @contextmanager
    def _transaction(self, kind):
        self.history.append(f"begin {kind}")
        yield None
        self.history.append(f"end {kind}")


def test_a_cycle_reads_decides_without_a_transaction_commits_and_dispatches():
    family = Counting(most=2)
    shell = Shell(family)
    decide = family.decide
    family.decide = lambda *asked: shell.history.append("decide") or decide(*asked)
    result = shell.cycle.run()
    assert shell.history == ["begin read", "end read", "decide", "begin write", "end write", "dispatch"]
    assert (result.family, result.policy.name, result.outcome.summary) == ("counting", "by hand", "1 done")
    assert result.durations == Durations(snapshot_s=1.0, decide_s=1.0, commit_s=1.0, dispatch_s=1.0)
    assert result.again
    assert not shell.cycle.run().again


def test_a_dry_run_reads_and_decides_and_commits_nothing():
    family = Counting(most=1)
    shell = Shell(family)
    look, decision = shell.cycle.dry_run()
    assert shell.history == ["begin read", "end read"]
    assert (look.view, decision.wanted, family.done) == (0, 1, 0)
    assert shell.cycle.run().outcome.changed
    assert shell.cycle.dry_run() is None


def test_a_cycle_that_finds_nothing_to_decide_only_reads():
    shell = Shell(Counting(most=0))
    result = shell.cycle.run()
    assert shell.history == ["begin read", "end read"]
    assert (result.policy, result.outcome, result.durations) == (None, Outcome(), Durations(snapshot_s=1.0))


def test_what_the_policy_does_not_want_to_change_is_not_committed():
    family = Counting()
    family.decide = lambda look, state, rng: Decision()
    shell = Shell(family)
    assert shell.cycle.run().outcome == Outcome()
    assert shell.history == ["begin read", "end read"]


def test_an_error_of_the_policy_is_returned_and_the_family_is_looked_at_again_after_a_while():
    family, error = Counting(), ZeroDivisionError()
    family.errors.append(error)
    shell = Shell(family)
    result = shell.cycle.run()
    message = "counting policy by hand failed; next try in 5 s"
    assert result.failures == (PolicyFailure(message=message, error=error),)
    shell.history.clear()
    shell.now_s += RETRY_S - 0.1
    assert shell.cycle.run().policy is None
    assert shell.history == []
    shell.now_s += 0.2
    assert shell.cycle.run().outcome.summary == "1 done"


def test_an_error_of_the_store_is_raised():
    family = Counting()
    shell = Shell(family)

    def commit(*_):
        raise OSError("disk full")

    family.commit = commit
    with pytest.raises(OSError, match="disk full"):
        shell.cycle.run()
    assert "dispatch" not in shell.history
