"""Compiled measures of queues in reversed time: when each slot has computed all jobs, and each link has sent all.

Each requester sends one input after the other, as if no responder were slow (`requester_end_s`).  Each responder
receives the inputs from these start times on, as if there were no other traffic in the network
(`responder_end_s`).
"""

# Also compiled into `local_search`, whose cache numba does not invalidate after a change of this file: touch both.

import numpy as np

from fpga_pool.core.numba import compiled

#: Residual bandwidth and bits below this share are rounding noise.
_NOISE = 1e-9


@compiled(inner=True)
def _by_start(instance, queues, h, flow):  # type: ignore[no-untyped-def]
    """Write the jobs whose inputs a responder receives, by start of the transfer; return their number."""
    begin, end = instance.first_slot[h], instance.first_slot[h + 1]
    place, next_s = np.zeros(end - begin, np.int64), np.full(end - begin, np.inf)
    for k in range(end - begin):
        a = instance.slot_of[begin + k]
        if queues.queued[a] > 0:
            next_s[k] = queues.release_s[queues.queue[a, 0]]
    flows = 0
    while True:
        first, first_s = -1, np.inf
        for k in range(end - begin):
            if next_s[k] < first_s:
                first_s = next_s[k]
                first = k
        if first < 0:
            return flows
        a = instance.slot_of[begin + first]
        i = queues.queue[a, place[first]]
        place[first] += 1
        next_s[first] = queues.release_s[queues.queue[a, place[first]]] if place[first] < queues.queued[a] else np.inf
        u = instance.requester[i]
        unlimited = instance.egress_bps[u] == np.inf and instance.ingress_bps[h] == np.inf
        if instance.local_host[u] != h and instance.bits[i] > 0.0 and not unlimited:
            start_s, x = queues.start_s[i], flows
            while x > 0 and queues.start_s[flow[x - 1]] > start_s:
                flow[x] = flow[x - 1]
                x -= 1
            flow[x] = i
            flows += 1


@compiled(inner=True)
def responder_end_s(instance, queues, h, at_most_s, stamp):  # type: ignore[no-untyped-def]
    """Return the time when a responder has received all inputs, without other traffic; inf if after `at_most_s`.

    In the order of `turn`, flows take the rate that their requester and the responder have left.  `stamp` (R + 1,) is
    scratch: the number of the last event at which each requester sends; the last element is the current event.
    """
    flow = np.empty(len(instance.bits), np.int64)
    flows = _by_start(instance, queues, h, flow)
    limit_bps = instance.ingress_bps[h]
    noise_bps = _NOISE * limit_bps if limit_bps < np.inf else 0.0
    active, served = np.empty(flows, np.int64), np.empty(flows, np.int64)
    left, served_bps, turn = np.empty(flows), np.empty(flows), np.empty(flows)
    to_send_s = 0.0
    for k in range(flows):
        to_send_s += instance.bits[flow[k]] / limit_bps
    now_s, released, count = 0.0, 0, 0
    while released < flows or count > 0:
        if count == 0:
            now_s = max(now_s, queues.start_s[flow[released]])
        if now_s + to_send_s > at_most_s:
            return np.inf
        while released < flows and queues.start_s[flow[released]] <= now_s:
            i = flow[released]
            x, turn_i = count, instance.turn[i]
            while x > 0 and turn[x - 1] > turn_i:
                active[x], left[x], turn[x] = active[x - 1], left[x - 1], turn[x - 1]
                x -= 1
            active[x], left[x], turn[x] = i, instance.bits[i], turn_i
            count += 1
            released += 1
        elapsed_s = queues.start_s[flow[released]] - now_s if released < flows else np.inf
        stamp[-1] += 1
        residual_bps, sent_bps, serving = limit_bps, 0.0, 0
        for x in range(count):
            u = instance.requester[active[x]]
            if stamp[u] == stamp[-1]:
                continue
            stamp[u] = stamp[-1]
            bps = min(instance.egress_bps[u], residual_bps)
            residual_bps -= bps
            sent_bps += bps
            served[serving] = x
            served_bps[serving] = bps
            serving += 1
            elapsed_s = min(elapsed_s, left[x] / bps)
            if residual_bps <= noise_bps:
                break
        now_s += elapsed_s
        to_send_s -= sent_bps * elapsed_s / limit_bps
        ended = False
        for k in range(serving):
            x = served[k]
            left[x] -= served_bps[k] * elapsed_s
            if left[x] <= _NOISE * instance.bits[active[x]]:
                left[x] = -1.0
                ended = True
        if ended:
            kept = 0
            for x in range(count):
                if left[x] >= 0.0:
                    active[kept], left[kept], turn[kept] = active[x], left[x], turn[x]
                    kept += 1
            count = kept
    return now_s


@compiled(inner=True)
def requester_end_s(instance, queues, u, flow):  # type: ignore[no-untyped-def]
    """Return the time when a requester has sent all inputs in order of release; write the start of each transfer.

    `flow` (J,) is scratch.
    """
    begin, end = instance.first_job[u], instance.first_job[u + 1]
    flows = 0
    for k in range(begin, end):
        i = instance.job_of[k]
        if instance.responder[queues.accelerator[i]] == instance.local_host[u] or instance.bits[i] == 0.0:
            continue
        release_s, x = queues.release_s[i], flows
        while x > 0 and queues.release_s[flow[x - 1]] > release_s:
            flow[x] = flow[x - 1]
            x -= 1
        flow[x] = i
        flows += 1
    end_s = 0.0
    for k in range(flows):
        queues.start_s[flow[k]] = max(end_s, queues.release_s[flow[k]])
        end_s = queues.start_s[flow[k]] + instance.bits[flow[k]] / instance.egress_bps[u]
    return end_s


@compiled(inner=True)
def compute(instance, queues, a):  # type: ignore[no-untyped-def]
    """Write the times when a slot has computed each job of its queue."""
    now_s = 0.0
    for k in range(queues.queued[a]):
        i = queues.queue[a, k]
        now_s += instance.seconds[i, a]
        queues.release_s[i] = now_s
    queues.load_s[a] = now_s


@compiled()
def measure(instance, queues):  # type: ignore[no-untyped-def]
    """Write all times of the queues."""
    requesters, hosts = len(instance.egress_bps), len(instance.ingress_bps)
    stamp, flow = np.zeros(requesters + 1, np.int64), np.empty(len(instance.bits), np.int64)
    for a in range(len(instance.responder)):
        compute(instance, queues, a)
    queues.start_s[:] = queues.release_s
    for u in range(requesters):
        queues.link_end_s[u] = requester_end_s(instance, queues, u, flow)
    for h in range(hosts):
        queues.link_end_s[requesters + h] = responder_end_s(instance, queues, h, np.inf, stamp)
