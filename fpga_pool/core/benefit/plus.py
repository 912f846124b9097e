"""`benefit_plus`."""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammainc

from fpga_pool.core.benefit.moves import Load, Move, Start
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.policy import PolicyState


@dataclass(frozen=True, slots=True, kw_only=True)
class PlusParams:
    kappa: float = 1.0
    h0: float = 0.0
    margin: float = 0.0
    spec: float = 0.0
    cover: float = 1e9
    cp: float = 0.0
    pre: float = 0.0
    h1: float = 1.0


class BenefitPlus:
    name = "benefit_plus"
    Params = PlusParams

    def __init__(self, params: PlusParams | None = None) -> None:
        self._params = params or PlusParams()

    def supports(self, view: Occupancy) -> bool:
        return True

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        move = self._conversion(view, now_s)
        if move is not None:
            return move
        for f in view.functions:
            if view.waiting[f]:
                for kind in view.kinds:
                    slots = view.idle[kind][f]
                    if slots:
                        return Start(view.roomiest(slots), f)
        return None

    def _conversion(self, view, now_s):
        P = self._params
        d = view.demand
        kinds = [k for k in view.kinds if any(view.idle[k]) or any(view.evictable[k])]
        if not kinds:
            return None
        F = view.functions
        w = d.work_s
        mean_w = [x for x in w if x > 0]
        if not mean_w:
            return None
        mean_w = sum(mean_w) / len(mean_w)
        s = d.speedup
        off = [d.offered(f, now_s) for f in F]
        by = now_s + P.cover * max(view.load_s)
        un = [view.uncovered(f, 8, by_s=by) if view.waiting[f] else 0 for f in F]
        best, pick = 0.0, None
        for k in kinds:
            L = view.load_s[k]
            H = P.h1 * mean_w + (1 + P.kappa) * L + P.h0
            gains = []
            for f in F:
                if not view.fits[k][f] or w[f] == 0:
                    continue
                t = H - L
                b = min(t, un[f] * w[f])
                if b == 0 and P.spec == 0: continue
                rho = gammainc(view.held[f] + 1, off[f])
                gains.append((s[f] * (b + rho * (t - b)) * (1 if b else P.spec), f))
            gains.sort(reverse=True)
            for g in (*F, EMPTY):
                for pre in (0, 1):
                    slots = view.idle[k][g] if not pre else (view.evictable[k][g] if g >= 0 else ())
                    if not slots:
                        continue
                    slot = view.roomiest(slots, port=True)
                    if slot is None:
                        continue
                    if g == EMPTY:
                        keep = keepp = 0.0
                    else:
                        n = len(view.waiting[g])
                        if n:
                            n = view.uncovered(g, 8, -1, by) if not pre else un[g]
                        b = n * w[g]
                        if pre:
                            b += max(0, view.end_s[slot] - now_s)
                        b = min(H, b)
                        rho = gammainc(view.held[g], off[g])
                        keep = s[g] * (b + max(0.0, rho * (H - b) - P.cp * (1 - rho) * 1.0))
                        keepp = s[g] * (b + max(0.0, rho * (min(H,2*L+P.pre) - b) - P.cp * (1 - rho) * 1.0))
                    for gain, f in gains:
                        if f == g: continue
                        if pre and not un[f]: continue
                        net = gain - (keepp if view.preemptible[f] and P.pre>0 else keep) * (1 + P.margin)
                        if net > best:
                            best, pick = net, Load(slot, f)
                        break
        return pick
