"""Transfers with a guaranteed rate; the rest is shared shortest first (makespan paper, end of section 3.2)."""

from typing import NamedTuple

import numpy as np

from fpga_pool.core.makespan.residual import Pieces
from fpga_pool.core.types import Floats, Ints

#: Residual bandwidth below this share of a link's limit is rounding noise.
_NOISE = 1e-9
#: Times and rates closer than this, relatively, are one and the same.
_SAME = 1e-12


class Flows(NamedTuple):
    """Transfers that begin together, (n,) each; the guaranteed rates fit the links."""

    bits: Floats
    requester: Ints
    responder: Ints
    bps: Floats


def spread(flows: Flows, egress_bps: Floats, ingress_bps: Floats, begin_s: float, residual: str) -> list[Pieces]:
    """Return the pieces of each transfer.

    Parameters
    ----------
    flows
        What is sent.
    egress_bps, ingress_bps : (R,), (H,)
        Limits; inf = none.
    begin_s
        When all begin.
    residual
        When bandwidth that is left is given away: "none", "start" or "always" (see `NimParams`).

    """
    if residual == "none":
        return [_last(begin_s, bits, bps) for bits, bps in zip(flows.bits.tolist(), flows.bps.tolist(), strict=True)]
    if residual == "start":
        bps = flows.bps + _shared(flows, np.argsort(flows.bits, kind="stable"), egress_bps, ingress_bps)
        return [_last(begin_s, bits, bps) for bits, bps in zip(flows.bits.tolist(), bps.tolist(), strict=True)]
    return _Running(flows, egress_bps, ingress_bps, begin_s).run()


class _Running:
    """Transfers from event to event; one is touched only when its rate changes, so that rounding does not pile up."""

    def __init__(self, flows: Flows, egress_bps: Floats, ingress_bps: Floats, begin_s: float) -> None:
        self._flows, self._egress_bps, self._ingress_bps = flows, egress_bps, ingress_bps
        self._now_s = begin_s
        self._left_bits = np.array(flows.bits)
        self._since_s = np.full(len(flows.bits), begin_s)
        self._bps = np.zeros(len(flows.bits))
        self._end_s = np.full(len(flows.bits), np.inf)
        self._active = np.argsort(flows.bits, kind="stable")
        self._pieces: list[list[tuple[float, float, float]]] = [[] for _ in flows.bits]

    def run(self) -> list[Pieces]:
        while len(self._active):
            self._share()
            self._now_s = float(self._end_s[self._active].min())
            ended = self._end_s[self._active] <= self._now_s * (1 + _SAME)
            for flow in self._active[ended].tolist():
                begin_s, end_s = float(self._since_s[flow]), float(self._end_s[flow])
                self._pieces[flow].append((begin_s, end_s, float(self._left_bits[flow]) / (end_s - begin_s)))
            self._active = self._active[~ended]
        return [Pieces(*(np.array(column) for column in zip(*pieces, strict=True))) for pieces in self._pieces]

    def _share(self) -> None:
        """Set the rates of all active transfers: what is guaranteed, and what is left to the shortest."""
        active = self._active
        bps = self._flows.bps[active] + _shared(self._flows, active, self._egress_bps, self._ingress_bps)[active]
        changed = np.abs(bps - self._bps[active]) > _SAME * bps
        flow, bps = active[changed], bps[changed]
        elapsed_s = self._now_s - self._since_s[flow]
        for k in np.flatnonzero((elapsed_s > 0) & (self._bps[flow] > 0)).tolist():
            self._pieces[flow[k]].append((float(self._since_s[flow[k]]), self._now_s, float(self._bps[flow[k]])))
        self._left_bits[flow] = np.maximum(self._left_bits[flow] - self._bps[flow] * elapsed_s, 0.0)
        self._since_s[flow] = self._now_s
        self._bps[flow] = bps
        # A transfer takes time even where the clock is too coarse to tell.
        self._end_s[flow] = np.maximum(self._now_s + self._left_bits[flow] / bps, np.nextafter(self._now_s, np.inf))


def _shared(flows: Flows, active: Ints, egress_bps: Floats, ingress_bps: Floats) -> Floats:
    """Return (n,) what the links leave beside the guaranteed rates of `active`, given to these in their order."""
    more_bps = np.zeros(len(flows.bits))
    out_bps = _left(egress_bps, flows.requester[active], flows.bps[active])
    in_bps = _left(ingress_bps, flows.responder[active], flows.bps[active])
    served = active[(out_bps[flows.requester[active]] > 0) & (in_bps[flows.responder[active]] > 0)]
    out, into = out_bps.tolist(), in_bps.tolist()
    ends = zip(served.tolist(), flows.requester[served].tolist(), flows.responder[served].tolist(), strict=True)
    for flow, u, h in ends:
        bps = min(out[u], into[h])
        if bps > 0.0:
            more_bps[flow] = bps
            out[u] -= bps
            into[h] -= bps
    return more_bps


def _left(limit_bps: Floats, link: Ints, bps: Floats) -> Floats:
    left_bps = limit_bps - np.bincount(link, bps, len(limit_bps))
    left_bps[left_bps < _NOISE * np.where(np.isfinite(limit_bps), limit_bps, 0.0)] = 0.0
    return left_bps


def _last(begin_s: float, bits: float, bps: float) -> Pieces:
    """Return one piece that carries exactly `bits`, whatever rounding does to its length."""
    end_s = max(begin_s + bits / bps, float(np.nextafter(begin_s, np.inf)))
    return Pieces(np.array([begin_s]), np.array([end_s]), np.array([bits / (end_s - begin_s)]))
