"""What transfers planned so far leave of every link, and how a further one fills it (makespan paper, Algorithm 4)."""

from typing import NamedTuple

import numpy as np

from fpga_pool.core.types import Floats, Ints

#: Residual bandwidth below this share of a link's limit is rounding noise.
_NOISE = 1e-9


class Pieces(NamedTuple):
    """Constant-rate pieces of one transfer, (n,) each, in order of time and without overlap."""

    begin_s: Floats
    end_s: Floats
    bps: Floats


class Steps(NamedTuple):
    """A rate over time: `bps[k]` from `begin_s[k]` to `begin_s[k + 1]`, the last one for ever."""

    begin_s: Floats
    bps: Floats


class Residual:
    """R_out(t) and R_in(t) of section 3.3: a step function per requester and per responder."""

    def __init__(self, egress_bps: Floats, ingress_bps: Floats) -> None:
        self._limits = (egress_bps, ingress_bps)
        self._egress = [Steps(np.zeros(1), np.array([bps])) for bps in egress_bps.tolist()]
        self._ingress = [Steps(np.zeros(1), np.array([bps])) for bps in ingress_bps.tolist()]
        #: When the last transfer ends.
        self.busy_until_s = 0.0

    def between(self, requester: int, responder: int, from_s: float) -> Steps:
        """Return min{R_out, R_in} of a pair from a time on."""
        out, into = self._egress[requester], self._ingress[responder]
        later_s = np.unique(np.concatenate((out.begin_s, into.begin_s)))
        begin_s = np.append(from_s, later_s[later_s > from_s])
        return Steps(begin_s, np.minimum(_at(out, begin_s), _at(into, begin_s)))

    def leaving(self, requester: int, from_s: float) -> Steps:
        """Return R_out of a requester from a time on."""
        out = self._egress[requester]
        begin_s = np.append(from_s, out.begin_s[out.begin_s > from_s])
        return Steps(begin_s, _at(out, begin_s))

    def least(self, from_s: float) -> tuple[Floats, Floats]:
        """Return egress (R,) and ingress (H,) that are left at every time from a time on."""
        egress = [_least_bps(steps, from_s) for steps in self._egress]
        ingress = [_least_bps(steps, from_s) for steps in self._ingress]
        return np.array(egress), np.array(ingress)

    def take_all(self, requester: Ints, responder: Ints, pieces: Pieces) -> None:
        """Subtract many pieces (S,), each on its pair of links, from an idle network."""
        for steps, limits_bps, link in (
            (self._egress, self._limits[0], requester),
            (self._ingress, self._limits[1], responder),
        ):
            _take_all(steps, limits_bps, link, pieces)
        self.busy_until_s = max(self.busy_until_s, float(pieces.end_s.max(initial=0.0)))

    def ingress_taken_s(self, from_s: float) -> Floats:
        """Return (H,) how long what is planned from a time on would take each ingress by itself."""
        limits_bps = self._limits[1].tolist()
        return np.array([_taken_s(steps, from_s, bps) for steps, bps in zip(self._ingress, limits_bps, strict=True)])

    def copy(self) -> "Residual":
        """Return one from which can be taken without changing this one."""
        other = Residual(*self._limits)
        other._egress, other._ingress = list(self._egress), list(self._ingress)
        other.busy_until_s = self.busy_until_s
        return other

    def take(self, requester: int, responder: int, pieces: Pieces) -> None:
        """Subtract a transfer (Algorithm 4, line 13)."""
        egress_bps, ingress_bps = self._limits
        if np.isfinite(egress_bps[requester]):
            self._egress[requester] = _less(self._egress[requester], pieces, float(egress_bps[requester]))
        if np.isfinite(ingress_bps[responder]):
            self._ingress[responder] = _less(self._ingress[responder], pieces, float(ingress_bps[responder]))
        self.busy_until_s = max(self.busy_until_s, float(pieces.end_s[-1]))


def _take_all(steps: list[Steps], limits_bps: Floats, link: Ints, pieces: Pieces) -> None:
    """Subtract pieces (S,) from the links (S,) they cross: all changes of a link in order of time, added up."""
    limited = np.isfinite(limits_bps[link])
    begin_s, end_s, bps = (column[limited] for column in pieces)
    links = np.tile(link[limited], 2)
    times_s, change_bps = np.concatenate((begin_s, end_s)), np.concatenate((-bps, bps))
    order = np.lexsort((times_s, links))
    links, times_s, change_bps = links[order], times_s[order], change_bps[order]
    used, first = np.unique(links, return_index=True)
    for u, begin, end in zip(used.tolist(), first.tolist(), [*first.tolist(), len(links)][1:], strict=True):
        at_s = times_s[begin:end]
        left_bps = limits_bps[u] + np.cumsum(change_bps[begin:end])
        left_bps[left_bps < _NOISE * limits_bps[u]] = 0.0
        last = np.append(at_s[1:] != at_s[:-1], True)
        at_s, left_bps = at_s[last], left_bps[last]
        if at_s[0] > 0.0:
            at_s, left_bps = np.append(0.0, at_s), np.append(limits_bps[u], left_bps)
        steps[u] = Steps(at_s, left_bps)


def as_soon_as_possible(steps: Steps, bits: float) -> Pieces:
    """Fill all there is until `bits` > 0 are sent (Algorithm 4, lines 9 and 10: water filling)."""
    ends_s = np.append(steps.begin_s[1:], np.inf)
    with np.errstate(invalid="ignore"):  # no rate for ever sends nothing
        sent_bits = np.cumsum(np.where(steps.bps > 0, steps.bps * (ends_s - steps.begin_s), 0.0))
    last = int(np.searchsorted(sent_bits, bits))
    left_bits = bits - (float(sent_bits[last - 1]) if last else 0.0)
    begin_s = float(steps.begin_s[last])
    # A transfer takes time even where the clock is too coarse to tell.
    end_s = max(begin_s + left_bits / float(steps.bps[last]), float(np.nextafter(begin_s, np.inf)))
    bps = np.append(steps.bps[:last], left_bits / (end_s - begin_s))
    return _merged(Pieces(steps.begin_s[: last + 1], np.append(steps.begin_s[1 : last + 1], end_s), bps))


def just_in_time(steps: Steps, bits: float, by_s: float) -> Pieces | None:
    """Fill the same share of all there is so that `bits` > 0 end at `by_s` (line 7); None where that is too early."""
    inside = steps.begin_s < by_s
    begin_s = steps.begin_s[inside]
    if len(begin_s) == 0:
        return None
    ends_s = np.append(begin_s[1:], by_s)
    could_bits = float(np.sum(steps.bps[inside] * (ends_s - begin_s)))
    if could_bits < bits:
        return None
    return _merged(Pieces(begin_s, ends_s, steps.bps[inside] * (bits / could_bits)))


def _least_bps(steps: Steps, from_s: float) -> float:
    return float(steps.bps[np.searchsorted(steps.begin_s, from_s, side="right") - 1 :].min())


def _taken_s(steps: Steps, from_s: float, limit_bps: float) -> float:
    # All is left after the last step.
    return float((1 - steps.bps[:-1] / limit_bps) @ np.diff(np.maximum(steps.begin_s, from_s)))


def _at(steps: Steps, time_s: Floats) -> Floats:
    """Return the rate at each time."""
    found: Floats = steps.bps[np.searchsorted(steps.begin_s, time_s, side="right") - 1]
    return found


def _less(steps: Steps, pieces: Pieces, limit_bps: float) -> Steps:
    """Return `steps` without what `pieces` take; equal neighbours become one."""
    begin_s = np.unique(np.concatenate((steps.begin_s, pieces.begin_s, pieces.end_s)))
    place = np.searchsorted(pieces.begin_s, begin_s, side="right") - 1
    taken_bps = np.where((place >= 0) & (begin_s < pieces.end_s[place]), pieces.bps[place], 0.0)
    left_bps = _at(steps, begin_s) - taken_bps
    left_bps[left_bps < _NOISE * limit_bps] = 0.0
    kept = np.append(True, left_bps[1:] != left_bps[:-1])
    return Steps(begin_s[kept], left_bps[kept])


def _merged(pieces: Pieces) -> Pieces:
    """Return the pieces with a rate, neighbours of one rate as one."""
    begin_s, end_s, bps = (column[pieces.bps > 0] for column in pieces)
    first = np.append(True, (bps[1:] != bps[:-1]) | (begin_s[1:] != end_s[:-1]))
    last = np.append(first[1:], True)
    return Pieces(begin_s[first], end_s[last], bps[first])
