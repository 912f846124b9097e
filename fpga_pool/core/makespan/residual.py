"""Residual bandwidth: the bandwidth that planned transfers leave on every link, and how another transfer uses it.

`Residual` and `ResidualLinks` follow the same rules (makespan paper, section 3.3 and Algorithm 4, lines 7, 9, 10 and
13).  `Residual` keeps numpy arrays for whole batches.  `ResidualLinks` keeps plain lists and computes a link on first
use: a re-plan needs a few of many links and fills them a few bits at a time, so numpy calls would take most of the
time.
"""

from bisect import bisect_left, bisect_right
from math import inf, nextafter
from typing import NamedTuple

import numpy as np

from fpga_pool.core.types import Floats, Ints

#: Residual bandwidth below this share of a link's limit is rounding noise.
_NOISE = 1e-9


class Pieces(NamedTuple):
    """Constant-rate pieces of one transfer, (n,) each, in chronological order and without overlap."""

    begin_s: Floats
    end_s: Floats
    bps: Floats


class Steps(NamedTuple):
    """A rate over time: `bps[k]` from `begin_s[k]` to `begin_s[k + 1]`; the last rate never ends."""

    begin_s: Floats
    bps: Floats


class Residual:
    """R_out(t) and R_in(t) of section 3.3: a step function per requester and per responder."""

    def __init__(self, egress_bps: Floats, ingress_bps: Floats) -> None:
        self._limits = (egress_bps, ingress_bps)
        self._egress = [Steps(np.zeros(1), np.array([bps])) for bps in egress_bps.tolist()]
        self._ingress = [Steps(np.zeros(1), np.array([bps])) for bps in ingress_bps.tolist()]
        #: The time when the last transfer ends.
        self.busy_until_s = 0.0

    def between(self, requester: int, responder: int, from_s: float) -> Steps:
        """Return min{R_out, R_in} of a requester and a responder from `from_s` on."""
        out, into = self._egress[requester], self._ingress[responder]
        later_s = np.unique(np.concatenate((out.begin_s, into.begin_s)))
        begin_s = np.append(from_s, later_s[later_s > from_s])
        return Steps(begin_s, np.minimum(_at(out, begin_s), _at(into, begin_s)))

    def least(self, from_s: float) -> tuple[Floats, Floats]:
        """Return the smallest residual egress (R,) and ingress (H,) from `from_s` on."""
        egress = [_least_bps(steps, from_s) for steps in self._egress]
        ingress = [_least_bps(steps, from_s) for steps in self._ingress]
        return np.array(egress), np.array(ingress)

    def take_all(self, requester: Ints, responder: Ints, pieces: Pieces) -> None:
        """Subtract many pieces (S,), each from its pair of links, in an otherwise idle network."""
        for steps, limits_bps, link in (
            (self._egress, self._limits[0], requester),
            (self._ingress, self._limits[1], responder),
        ):
            _take_all(steps, limits_bps, link, pieces)
        self.busy_until_s = max(self.busy_until_s, float(pieces.end_s.max(initial=0.0)))

    def ingress_taken_s(self, from_s: float) -> Floats:
        """Return (H,) the seconds for which the traffic planned from `from_s` on would fill each ingress."""
        limits_bps = self._limits[1].tolist()
        return np.array([_taken_s(steps, from_s, bps) for steps, bps in zip(self._ingress, limits_bps, strict=True)])

    def copy(self) -> "Residual":
        """Return a copy; transfers subtracted from it do not change this object."""
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
    """Subtract pieces (S,) from the links (S,) they cross, by a running sum of each link's changes over time."""
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
    """Use the whole residual rate until `bits` > 0 are sent (Algorithm 4, lines 9 and 10: water filling)."""
    ends_s = np.append(steps.begin_s[1:], np.inf)
    with np.errstate(invalid="ignore"):  # 0 * inf: a last rate of 0 sends nothing
        sent_bits = np.cumsum(np.where(steps.bps > 0, steps.bps * (ends_s - steps.begin_s), 0.0))
    last = int(np.searchsorted(sent_bits, bits))
    left_bits = bits - (float(sent_bits[last - 1]) if last else 0.0)
    begin_s = float(steps.begin_s[last])
    # A transfer takes time even if the clock is too coarse to show it.
    end_s = max(begin_s + left_bits / float(steps.bps[last]), float(np.nextafter(begin_s, np.inf)))
    bps = np.append(steps.bps[:last], left_bits / (end_s - begin_s))
    return _merged(Pieces(steps.begin_s[: last + 1], np.append(steps.begin_s[1 : last + 1], end_s), bps))


def just_in_time(steps: Steps, bits: float, by_s: float) -> Pieces | None:
    """Use a constant share of the residual rate so that `bits` > 0 end at `by_s` (line 7); None if too early."""
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
    # The last step never ends and has the full limit, so it is left out.
    return float((1 - steps.bps[:-1] / limit_bps) @ np.diff(np.maximum(steps.begin_s, from_s)))


def _at(steps: Steps, time_s: Floats) -> Floats:
    """Return the rate at each time."""
    found: Floats = steps.bps[np.searchsorted(steps.begin_s, time_s, side="right") - 1]
    return found


def _less(steps: Steps, pieces: Pieces, limit_bps: float) -> Steps:
    """Return `steps` minus the rates of `pieces`; adjacent steps of equal rate are merged."""
    begin_s = np.unique(np.concatenate((steps.begin_s, pieces.begin_s, pieces.end_s)))
    place = np.searchsorted(pieces.begin_s, begin_s, side="right") - 1
    taken_bps = np.where((place >= 0) & (begin_s < pieces.end_s[place]), pieces.bps[place], 0.0)
    left_bps = _at(steps, begin_s) - taken_bps
    left_bps[left_bps < _NOISE * limit_bps] = 0.0
    kept = np.append(True, left_bps[1:] != left_bps[:-1])
    return Steps(begin_s[kept], left_bps[kept])


def _merged(pieces: Pieces) -> Pieces:
    """Return the pieces with a positive rate; adjacent pieces of equal rate are merged."""
    begin_s, end_s, bps = (column[pieces.bps > 0] for column in pieces)
    first = np.append(True, (bps[1:] != bps[:-1]) | (begin_s[1:] != end_s[:-1]))
    last = np.append(first[1:], True)
    return Pieces(begin_s[first], end_s[last], bps[first])


# ---- Link by link, in plain lists


class Piece(NamedTuple):
    """A part of one transfer at a constant rate."""

    begin_s: float
    end_s: float
    bps: float


class _Link(NamedTuple):
    """Residual bandwidth of a link over time: `bps[k]` from `begin_s[k]` to `begin_s[k + 1]`; the last never ends."""

    begin_s: list[float]
    bps: list[float]
    limit_bps: float


class ResidualLinks:
    """R_out(t) and R_in(t) of section 3.3, from time 0 on.

    The limits of requesters (R,) and responders (H,) are inf if there is no limit.  The pieces (S,) of the transfers
    under way cross the links of `requester` and `responder`.
    """

    def __init__(
        self,
        egress_bps: Floats,
        ingress_bps: Floats,
        requester: Ints,
        responder: Ints,
        begin_s: Floats,
        end_s: Floats,
        bps: Floats,
    ) -> None:
        times_s, change_bps = np.concatenate((begin_s, end_s)), np.concatenate((-bps, bps))
        self._egress = _Side(egress_bps, requester, times_s, change_bps)
        self._ingress = _Side(ingress_bps, responder, times_s, change_bps)

    def left_s(self, requester: int, from_s: float, bits: float) -> float:
        """Return the time when `bits` > 0 would have left a requester if ingress were unlimited."""
        out = self._egress.link(requester)
        return from_s if out.limit_bps == inf else _fill(out, _UNLIMITED, from_s, bits)[-1].end_s

    def arrival_s(self, requester: int, responder: int, from_s: float, bits: float, before_s: float = inf) -> float:
        """Return the time when `bits` > 0 would arrive if sent as soon as possible; inf if not before `before_s`."""
        pieces = _fill(self._egress.link(requester), self._ingress.link(responder), from_s, bits, before_s)
        return pieces[-1].end_s if pieces else inf

    def send(self, requester: int, responder: int, from_s: float, bits: float) -> list[Piece]:
        """Send `bits` > 0 as soon as possible; return the pieces, which are subtracted from both links."""
        out, into = self._egress.link(requester), self._ingress.link(responder)
        pieces = _fill(out, into, from_s, bits)
        for link in (out, into):
            if link.limit_bps < inf:
                for piece in pieces:
                    _take(link, piece)
        return pieces


class _Side:
    """The links of one direction."""

    def __init__(self, limits_bps: Floats, link: Ints, times_s: Floats, change_bps: Floats) -> None:
        order = np.lexsort((times_s, np.tile(link, 2)))
        links = np.tile(link, 2)[order]
        self._limits_bps = limits_bps.tolist()
        self._times_s, self._change_bps = times_s[order], change_bps[order]
        self._first = np.searchsorted(links, np.arange(len(limits_bps) + 1)).tolist()
        self._links: dict[int, _Link] = {}

    def link(self, number: int) -> _Link:
        """Return the residual bandwidth of a link."""
        found = self._links.get(number)
        if found is None:
            events = slice(self._first[number], self._first[number + 1])
            found = self._links[number] = _less_all(
                self._limits_bps[number], self._times_s[events].tolist(), self._change_bps[events].tolist()
            )
        return found


#: Placeholder for a link whose limit is to be ignored.
_UNLIMITED = _Link([0.0], [inf], inf)


def _less_all(limit_bps: float, times_s: list[float], change_bps: list[float]) -> _Link:
    """Return a link after all of its changes, which are given in chronological order."""
    link = _Link([0.0], [limit_bps], limit_bps)
    if limit_bps == inf:
        return link
    left_bps = limit_bps
    for time_s, change in zip(times_s, change_bps, strict=True):
        left_bps += change
        usable_bps = left_bps if left_bps >= _NOISE * limit_bps else 0.0
        if time_s > link.begin_s[-1]:
            link.begin_s.append(time_s)
            link.bps.append(usable_bps)
        else:
            link.bps[-1] = usable_bps
    return link


def _fill(out: _Link, into: _Link, from_s: float, bits: float, before_s: float = inf) -> list[Piece]:
    """Return the pieces that use all both links have left until `bits` are sent; none if not before `before_s`."""
    i, j = bisect_right(out.begin_s, from_s) - 1, bisect_right(into.begin_s, from_s) - 1
    now_s, left_bits, pieces = from_s, bits, list[Piece]()
    while now_s < before_s:
        out_until_s = out.begin_s[i + 1] if i + 1 < len(out.begin_s) else inf
        into_until_s = into.begin_s[j + 1] if j + 1 < len(into.begin_s) else inf
        until_s, bps = min(out_until_s, into_until_s), min(out.bps[i], into.bps[j])
        if bps > 0.0:
            could_bits = bps * (until_s - now_s)
            last = could_bits >= left_bits
            if last:
                # A transfer takes time even if the clock is too coarse to show it.
                until_s = max(now_s + left_bits / bps, nextafter(now_s, inf))
                bps = left_bits / (until_s - now_s)
            if pieces and pieces[-1].bps == bps and pieces[-1].end_s == now_s:
                pieces[-1] = Piece(pieces[-1].begin_s, until_s, bps)
            else:
                pieces.append(Piece(now_s, until_s, bps))
            if last:
                return pieces if until_s < before_s else []
            left_bits -= could_bits
        now_s = until_s
        i += out_until_s == until_s
        j += into_until_s == until_s
    return []


def _take(link: _Link, piece: Piece) -> None:
    """Subtract a piece from the residual bandwidth of a link."""
    first, last = _step_at(link, piece.begin_s), _step_at(link, piece.end_s)
    noise_bps = _NOISE * link.limit_bps
    for k in range(first, last):
        left_bps = link.bps[k] - piece.bps
        link.bps[k] = left_bps if left_bps >= noise_bps else 0.0


def _step_at(link: _Link, time_s: float) -> int:
    """Return the index of the step that begins at `time_s`; insert the step if it does not exist yet."""
    place = bisect_left(link.begin_s, time_s)
    if place == len(link.begin_s) or link.begin_s[place] != time_s:
        link.begin_s.insert(place, time_s)
        link.bps.insert(place, link.bps[place - 1])
    return place
