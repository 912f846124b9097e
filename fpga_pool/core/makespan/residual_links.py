"""What transfers under way leave of every link, worked out for a link when it is asked for.

The same rules as `residual` (makespan paper, Algorithm 4, lines 9, 10 and 13), in plain lists and link by link: a
re-plan asks about a few links of many and fills them a few bits at a time, where calls of numpy would take most of the
time.
"""

from bisect import bisect_left, bisect_right
from math import inf, nextafter
from typing import NamedTuple

import numpy as np

from fpga_pool.core.types import Floats, Ints

#: Bandwidth below this share of a link's limit is rounding noise.
_NOISE = 1e-9


class Piece(NamedTuple):
    """A part of one transfer at a constant rate."""

    begin_s: float
    end_s: float
    bps: float


class _Link(NamedTuple):
    """What is left over time: `bps[k]` from `begin_s[k]` to `begin_s[k + 1]`, the last one for ever."""

    begin_s: list[float]
    bps: list[float]
    limit_bps: float


class ResidualLinks:
    """R_out(t) and R_in(t) of section 3.3, from time 0 on.

    Parameters
    ----------
    egress_bps : (R,)
        Limit of each requester; inf = none.
    ingress_bps : (H,)
        Limit of each responder; inf = none.
    requester, responder : (S,)
        The links that each piece of the transfers under way crosses.
    begin_s, end_s, bps : (S,)
        These pieces.

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
        """Return when `bits` > 0 would have left a requester if they had all ingress."""
        out = self._egress.link(requester)
        return from_s if out.limit_bps == inf else _fill(out, _UNLIMITED, from_s, bits)[-1].end_s

    def arrival_s(self, requester: int, responder: int, from_s: float, bits: float, before_s: float = inf) -> float:
        """Return when `bits` > 0 would arrive if sent as soon as possible; inf if not before `before_s`."""
        pieces = _fill(self._egress.link(requester), self._ingress.link(responder), from_s, bits, before_s)
        return pieces[-1].end_s if pieces else inf

    def send(self, requester: int, responder: int, from_s: float, bits: float) -> list[Piece]:
        """Send `bits` > 0 as soon as possible; return the pieces, which are not left any more."""
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
        """Return what is left of a link."""
        found = self._links.get(number)
        if found is None:
            events = slice(self._first[number], self._first[number + 1])
            found = self._links[number] = _less_all(
                self._limits_bps[number], self._times_s[events].tolist(), self._change_bps[events].tolist()
            )
        return found


#: In place of a link that is not asked about.
_UNLIMITED = _Link([0.0], [inf], inf)


def _less_all(limit_bps: float, times_s: list[float], change_bps: list[float]) -> _Link:
    """Return a link with all changes, in order of time, added up."""
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
    """Return the pieces that take all there is of both links until `bits` are sent; none if not before `before_s`."""
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
                # A transfer takes time even where the clock is too coarse to tell.
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
    """Subtract a piece from what is left of a link."""
    first, last = _step_at(link, piece.begin_s), _step_at(link, piece.end_s)
    noise_bps = _NOISE * link.limit_bps
    for k in range(first, last):
        left_bps = link.bps[k] - piece.bps
        link.bps[k] = left_bps if left_bps >= noise_bps else 0.0


def _step_at(link: _Link, time_s: float) -> int:
    """Return the number of the step that begins at a time; one that does not exist yet is made."""
    place = bisect_left(link.begin_s, time_s)
    if place == len(link.begin_s) or link.begin_s[place] != time_s:
        link.begin_s.insert(place, time_s)
        link.bps.insert(place, link.bps[place - 1])
    return place
