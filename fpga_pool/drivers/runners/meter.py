"""How far a process is, from CPU time that is read now and then, told again only when it goes on otherwise."""

from dataclasses import dataclass

#: A rate is measured over so long at least.
WINDOW_S = 2.0
#: What was told holds as long as it is wrong by no more than this, or this share of the time since.
TOLERANCE_S, TOLERANCE = 1.0, 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """What was done at a moment, in seconds on a processor of its own, and the rate since."""

    done_s: float
    rate: float
    at: float


class Meter:
    """The progress of one process."""

    def __init__(self) -> None:
        self._reported: Progress | None = None
        self._since = Progress(0.0, 0.0, 0.0)

    def look(self, done_s: float, now_s: float) -> Progress:
        """Return what is to be told of a process that has done `done_s` by now."""
        reported = self._reported
        if reported is None:
            self._reported = self._since = Progress(done_s, 0.0, now_s)
            return self._reported
        wrong_s = abs(reported.done_s + reported.rate * (now_s - reported.at) - done_s)
        passed_s = now_s - self._since.at
        if passed_s < WINDOW_S:
            return reported
        rate = max((done_s - self._since.done_s) / passed_s, 0.0)
        self._since = Progress(done_s, rate, now_s)
        if wrong_s > max(TOLERANCE_S, TOLERANCE * (now_s - reported.at)):
            self._reported = self._since
        return self._reported or reported
