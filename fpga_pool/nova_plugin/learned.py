"""FpgaPoolLearnedWeigher: applies the scorer of the policy `learned` to all hosts that pass, in one call.

A host is a node, and an instance a task. `doc/source/algorithms/learned.rst` describes how features are derived, and
the differences from the clusters used in training.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from oslo_log import log as logging

from fpga_pool.conf.learned import read_network, shipped_network
from fpga_pool.core.cluster.learned import SHORTLIST, Floats32, Network, scores
from fpga_pool.core.cluster.views import ACCELERATOR, ClusterView, TaskView
from fpga_pool.core.types import Floats, Ints
from fpga_pool.nova_plugin.pool import BUSY, HELD, IN_SERVICE, LEASED, Breaker, Picture
from fpga_pool.nova_plugin.request import Request
from fpga_pool.nova_plugin.weighers import CONF, PoolWeigher

LOG = logging.getLogger(__name__)

#: Interval at which the agreement of choices is logged at INFO.
LOG_INTERVAL_S = 60.0
#: Scores with a smaller difference are equal.
_EQUAL = 1e-6


class Shadow:
    """Compares the hosts that the scorer would have chosen with those that Nova has claimed; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # Reentrant, as the garbage collector may end a request in a thread that holds the lock.
        self._lock, self._clock = threading.RLock(), clock
        self._logged_at_s = float("-inf")
        #: Number of claims, and of claims on a host with the best score.
        self.claims = self.agreed = 0

    def compare(self, hosts: Sequence[Any], found: Floats, completions_s: Floats, claimed: Any) -> None:
        """Count a claim; `found` has the scores and `completions_s` the completions of `hosts`, shape (N,) each."""
        place = next((place for place, host in enumerate(hosts) if host.host == claimed.host), None)
        if place is None:
            return
        best = int(np.argmin(found))
        with self._lock:
            self.claims += 1
            self.agreed += bool(found[place] - found[best] <= _EQUAL)
            claims, agreed = self.claims, self.agreed
            logs = self._clock() - self._logged_at_s >= LOG_INTERVAL_S
            if logs:
                self._logged_at_s = self._clock()
        LOG.log(
            logging.INFO if logs else logging.DEBUG,
            "in shadow: best host %s, estimated completion in %.4g s; claimed on %s, %.4g s; %d of %d claims so far "
            "were on a host with the best score",
            *(hosts[best].host, completions_s[best], claimed.host, completions_s[place], agreed, claims),
        )


SHADOW = Shadow()


class FpgaPoolLearnedWeigher(PoolWeigher):
    """Prefers the hosts that the learned policy prefers, if `[fpga_pool] learned_mode` is active.

    It is neutral if it has no usable weights, if the network does not return finite numbers, or if it takes longer than
    its budget.  Hosts beyond the shortlist weigh less than all hosts on it.
    """

    multiplier = "fpga_pool_learned_weight_multiplier"
    #: Created at its first use.
    _breaker: Breaker | None = None

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        group = CONF.fpga_pool
        if group.learned_mode == "off" or request.picture is None:
            return []
        network = network_of(group.learned_weights)
        if network is None:
            return []
        if self._breaker is None:
            self._breaker = Breaker(group.breaker_failures, group.breaker_reset, time.monotonic)
        if not self._breaker.closed():
            return []
        began = time.monotonic()
        rows, completions_s = request.completions_s(hosts)
        found = _scores(network, request, request.picture, rows, completions_s)
        took_s = time.monotonic() - began
        if took_s > group.learned_time_budget:
            self._breaker.note_failure()
            LOG.warning("FpgaPoolLearnedWeigher is neutral: it took %.1f ms for %d hosts", 1000 * took_s, len(hosts))
            return []
        self._breaker.note_answer()
        if found is None:
            return []
        if group.learned_mode == "shadow":
            request.on_claim = partial(SHADOW.compare, hosts, found, completions_s)
            return []
        weights: list[float] = (-found).tolist()
        return weights


@lru_cache(maxsize=1)
def network_of(path: str) -> Network | None:
    """Return the network in a file, or the shipped one if `path` is empty; None, logged once, if it cannot be read."""
    try:
        return read_network(Path(path)) if path else shipped_network()
    except ValueError as error:
        LOG.warning("FpgaPoolLearnedWeigher is neutral until nova-scheduler starts again: %s", error)
        return None


def _scores(network: Network, request: Request, picture: Picture, rows: Ints, completions_s: Floats) -> Floats | None:
    """Return the scores of hosts, finite and lower for better hosts, shape (N,); None if the network has no result.

    `rows` and `completions_s` are those returned by `Request.completions_s`.
    """
    able = np.flatnonzero(np.isfinite(completions_s))
    if not len(able):
        return None
    view = _view(request, picture, rows[able], completions_s[able])
    scored = scores(network, view, np.arange(len(able)), completions_s[able], 0.0)
    if scored is None:
        return None
    listed = np.isfinite(scored)
    # Nova scales weights by the largest difference, which unsuitable hosts must not determine.
    found = np.full(len(completions_s), scored[listed].max() + np.log(SHORTLIST))
    found[able[listed]] = scored[listed]
    return found


def _view(request: Request, picture: Picture, rows: Ints, completions_s: Floats) -> ClusterView:
    """Return hosts as nodes, each of a separate kind, and the next instance as the task; `rows` has shape (N,).

    The pool knows only slots.  Nova's weighers consider cores and memory, which are equal for all hosts here.
    """
    fitting, loads = request.fitting, picture.loads()
    providers, count = loads.providers, len(rows)
    counts = loads.counts[providers.pool.slot_host[providers.slot[rows]]].T
    held_s: Floats32 = np.array(_held_s(picture, loads.functions, fitting.stay_s), dtype=np.float32)
    alone_s = fitting.stay_s * fitting.slowdown[rows]

    def of_slots(values: Floats | Floats32) -> Floats:
        found = np.zeros((count, 2))
        found[:, ACCELERATOR] = values
        return found

    units, backlog_s = of_slots(counts[IN_SERVICE]), of_slots(held_s @ counts[HELD:])
    return ClusterView(
        task=TaskView(
            number=0, pipeline=0, input_mb=0.0, path_s=alone_s, work_s=of_slots(request.wanted.count * alone_s)
        ),
        kind=np.arange(count), units=units, present=np.ones(count, dtype=bool), tasks=counts[LEASED],
        busy=of_slots(counts[BUSY]), memory_gb=np.ones((count, 2)), used_gb=np.zeros((count, 2)),
        backlog_s=backlog_s, committed_s=backlog_s / np.maximum(units, 1), link_free_s=completions_s - alone_s,
        link_mb_per_s=np.ones(count), pipelines=1, backlog_gb_s=np.zeros(count),
    )  # fmt: skip


def _held_s(picture: Picture, functions: Sequence[str], stay_s: float) -> Sequence[float]:
    """Return how long a slot stays held, by function and last for others; the mean of known times if it is unknown."""
    known = picture.run_times_s()
    others_s = sum(known.values()) / len(known) if known else stay_s
    return [*(known.get(name, others_s) for name in functions), others_s]
