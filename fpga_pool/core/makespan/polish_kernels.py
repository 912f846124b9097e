"""Compiled local search on reversed time: jobs change places until every link and accelerator ends by a target.

Read backwards, a slot computes its queue without a pause, and what it has computed is sent.  A change is judged by when
each responder would have received all it gets if the other responders sent nothing (`responder_end_s`), and each
requester would have sent all if no responder were slow (`_requester_end_s`); both together tell the length of a plan to
about 1 %.  `polish` changes the queues in place.
"""

import numpy as np
from numba import njit, types

from fpga_pool.core.makespan.kernels import _below
from fpga_pool.core.makespan.polishing import Instance, Queues

#: Residual bandwidth and bits below this share are rounding noise.
_NOISE = 1e-9
#: Steps for which one late link is worked at; one change in so many is made anywhere.
_STEPS_PER_LINK, _ANYWHERE = 8, 8

_WHOLES, _REALS = types.int64[::1], types.float64[::1]
_INSTANCE = types.NamedTuple(  # type: ignore[no-untyped-call]
    (
        types.Array(types.float64, 2, "C", readonly=True), _WHOLES, _REALS, _REALS, _WHOLES, _REALS, _REALS, _WHOLES,
        _WHOLES, _WHOLES, _WHOLES, _WHOLES, types.int64[:, ::1],
    ),
    Instance,
)  # fmt: skip
_QUEUES = types.NamedTuple((_WHOLES, types.int64[:, ::1], _WHOLES, _REALS, _REALS, _REALS), Queues)  # type: ignore[no-untyped-call]


@njit(types.int64(_INSTANCE, _QUEUES, types.int64, _WHOLES), cache=True)
def _by_release(instance, queues, h, flow):  # type: ignore[no-untyped-def]
    """Write the jobs that a responder receives, first released first; return how many."""
    begin, end = instance.first_slot[h], instance.first_slot[h + 1]
    place = np.zeros(end - begin, np.int64)
    flows = 0
    while True:
        first, first_s = -1, np.inf
        for k in range(end - begin):
            a = instance.slot_of[begin + k]
            if place[k] < queues.queued[a]:
                released_s = queues.release_s[queues.queue[a, place[k]]]
                if released_s < first_s:
                    first_s = released_s
                    first = k
        if first < 0:
            return flows
        i = queues.queue[instance.slot_of[begin + first], place[first]]
        place[first] += 1
        u = instance.requester[i]
        unlimited = instance.egress_bps[u] == np.inf and instance.ingress_bps[h] == np.inf
        if instance.local_host[u] != h and instance.bits[i] > 0.0 and not unlimited:
            flow[flows] = i
            flows += 1


@njit(types.float64(_INSTANCE, _QUEUES, types.int64, types.float64, _WHOLES), cache=True)
def responder_end_s(instance, queues, h, at_most_s, stamp):  # type: ignore[no-untyped-def]
    """Return when a responder has received all, its flows alone on the network; inf where after `at_most_s`.

    Flows take what their requester and the responder have left, in `turn`.  `stamp` (R + 1,) is scratch: which
    requesters send, by the number of the event; the last is that number.
    """
    flow = np.empty(len(instance.bits), np.int64)
    flows = _by_release(instance, queues, h, flow)
    limit_bps = instance.ingress_bps[h]
    noise_bps = _NOISE * limit_bps if limit_bps < np.inf else 0.0
    active, served = np.empty(flows, np.int64), np.empty(flows, np.int64)
    left, served_bps = np.empty(flows), np.empty(flows)
    to_send_s = 0.0
    for k in range(flows):
        to_send_s += instance.bits[flow[k]] / limit_bps
    now_s, released, count = 0.0, 0, 0
    while released < flows or count > 0:
        if count == 0:
            now_s = max(now_s, queues.release_s[flow[released]])
        if now_s + to_send_s > at_most_s:
            return np.inf
        while released < flows and queues.release_s[flow[released]] <= now_s:
            i = flow[released]
            x = count
            while x > 0 and instance.turn[active[x - 1]] > instance.turn[i]:
                active[x] = active[x - 1]
                left[x] = left[x - 1]
                x -= 1
            active[x] = i
            left[x] = instance.bits[i]
            count += 1
            released += 1
        elapsed_s = queues.release_s[flow[released]] - now_s if released < flows else np.inf
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
                    active[kept] = active[x]
                    left[kept] = left[x]
                    kept += 1
            count = kept
    return now_s


@njit(types.float64(_INSTANCE, _QUEUES, types.int64), cache=True)
def _requester_end_s(instance, queues, u):  # type: ignore[no-untyped-def]
    """Return when a requester has sent all, first released first."""
    begin, end = instance.first_job[u], instance.first_job[u + 1]
    flow = np.empty(end - begin, np.int64)
    flows = 0
    for k in range(begin, end):
        i = instance.job_of[k]
        if instance.responder[queues.accelerator[i]] == instance.local_host[u] or instance.bits[i] == 0.0:
            continue
        x = flows
        while x > 0 and queues.release_s[flow[x - 1]] > queues.release_s[i]:
            flow[x] = flow[x - 1]
            x -= 1
        flow[x] = i
        flows += 1
    end_s = 0.0
    for k in range(flows):
        end_s = max(end_s, queues.release_s[flow[k]]) + instance.bits[flow[k]] / instance.egress_bps[u]
    return end_s


@njit(types.void(_INSTANCE, _QUEUES, types.int64), cache=True)
def _compute(instance, queues, a):  # type: ignore[no-untyped-def]
    """Write when a slot has computed each of its queue."""
    now_s = 0.0
    for k in range(queues.queued[a]):
        i = queues.queue[a, k]
        now_s += instance.seconds[i, a]
        queues.release_s[i] = now_s
    queues.load_s[a] = now_s


@njit(types.void(_INSTANCE, _QUEUES), cache=True)
def measure(instance, queues):  # type: ignore[no-untyped-def]
    """Write all times of the queues."""
    requesters, hosts = len(instance.egress_bps), len(instance.ingress_bps)
    stamp = np.zeros(requesters + 1, np.int64)
    for a in range(len(instance.responder)):
        _compute(instance, queues, a)
    for u in range(requesters):
        queues.link_end_s[u] = _requester_end_s(instance, queues, u)
    for h in range(hosts):
        queues.link_end_s[requesters + h] = responder_end_s(instance, queues, h, np.inf, stamp)


@njit(types.int64(_QUEUES, types.int64, types.float64), cache=True)
def _place_by_release(queues, a, release_s):  # type: ignore[no-untyped-def]
    """Return how many of a slot's queue are computed before that time."""
    k = 0
    while k < queues.queued[a] and queues.release_s[queues.queue[a, k]] < release_s:
        k += 1
    return k


@njit(types.boolean(_INSTANCE, _QUEUES, types.int64, types.int64, types.int64, types.uint64[::1]), cache=True)
def _change(instance, queues, a, k, b, state):  # type: ignore[no-untyped-def]
    """Give job k of slot a another place in its queue, or in that of slot b, or exchange it; say whether that goes."""
    queue, queued = queues.queue, queues.queued
    i = queue[a, k]
    if a == b:
        other = _below(state, queued[a])
        step = 1 if other > k else -1
        while k != other:
            queue[a, k] = queue[a, k + step]
            k += step
        queue[a, other] = i
        return True
    kind = _below(state, 3)
    if instance.seconds[i, b] == np.inf:
        return False
    if kind == 0:
        if queued[b] == queue.shape[1]:
            return False
        other = _place_by_release(queues, b, queues.release_s[i]) + _below(state, 3) - 1
        other = max(0, min(queued[b], other))
        for x in range(queued[b], other, -1):
            queue[b, x] = queue[b, x - 1]
        for x in range(k, queued[a] - 1):
            queue[a, x] = queue[a, x + 1]
        queue[b, other] = i
        queued[b] += 1
        queued[a] -= 1
        queues.accelerator[i] = b
        return True
    if queued[b] == 0:
        return False
    other = _below(state, queued[b])
    if kind == 1:
        other = min(queued[b] - 1, _place_by_release(queues, b, queues.release_s[i]))
    j = queue[b, other]
    if instance.seconds[j, a] == np.inf:
        return False
    queue[a, k], queue[b, other] = j, i
    queues.accelerator[i], queues.accelerator[j] = b, a
    return True


@njit(types.float64(types.float64, types.float64), cache=True)
def _over(end_s, target_s):  # type: ignore[no-untyped-def]
    return max(0.0, end_s - target_s)


_SLOT_AND_PLACE = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]


@njit(_SLOT_AND_PLACE(_INSTANCE, _QUEUES, types.int64, types.uint64[::1]), cache=True)
def _pick(instance, queues, late, state):  # type: ignore[no-untyped-def]
    """Return a slot and a place in its queue, whose job crosses the link `late` most of the time; -1: no job."""
    requesters = len(instance.egress_bps)
    if late < 0 or _below(state, _ANYWHERE) == 0:
        a = _below(state, len(instance.responder))
    elif late >= requesters:
        begin, end = instance.first_slot[late - requesters], instance.first_slot[late - requesters + 1]
        a = instance.slot_of[begin + _below(state, end - begin)]
    else:
        begin, end = instance.first_job[late], instance.first_job[late + 1]
        i = instance.job_of[begin + _below(state, end - begin)]
        a = queues.accelerator[i]
        return a, _place_by_release(queues, a, queues.release_s[i])
    return a, _below(state, queues.queued[a]) if queues.queued[a] > 0 else -1


@njit(types.int64(_INSTANCE, types.int64, types.int64, types.uint64[::1]), cache=True)
def _other_slot(instance, a, i, state):  # type: ignore[no-untyped-def]
    """Return a slot for job i of slot a: often the same, else mostly one where it is quick."""
    kind = _below(state, 8)
    if kind < 2:
        return a
    if kind == 2:
        return _below(state, len(instance.responder))
    return instance.quick[i, _below(state, instance.quick.shape[1])]


@njit(types.float64(_INSTANCE, _QUEUES, _REALS, types.float64, types.int64, types.uint64[::1]), cache=True)
def polish(instance, queues, latest_s, target_s, steps, state):  # type: ignore[no-untyped-def]
    """Try `steps` changes, and keep those with which links and slots exceed their targets by no more, together.

    `latest_s` (A,) is the target of the slots.  The queues are measured; returns what is still exceeded, 0 ends it.
    """
    requesters, hosts = len(instance.egress_bps), len(instance.ingress_bps)
    queue, queued, link_end_s = queues.queue, queues.queued, queues.link_end_s
    stamp = np.zeros(requesters + 1, np.int64)
    changed, was_queued, was_load_s = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2)
    was_queue, was_release_s = np.empty((2, queue.shape[1]), np.int64), np.empty((2, queue.shape[1]))
    touched, was_end_s = np.empty(requesters, np.int64), np.empty(requesters)
    touched_at = np.full(requesters, -1)
    excess_s = 0.0
    for a in range(len(queued)):
        excess_s += _over(queues.load_s[a], latest_s[a])
    for end_s in link_end_s:
        excess_s += _over(end_s, target_s)
    late = -1
    for step in range(steps):
        if excess_s <= 0.0:
            break
        if step % _STEPS_PER_LINK == 0:
            seen, late = 0, -1
            for link in range(requesters + hosts):
                if link_end_s[link] > target_s:
                    seen += 1
                    if _below(state, seen) == 0:
                        late = link
        a, k = _pick(instance, queues, late, state)
        if k < 0:
            continue
        b = _other_slot(instance, a, queue[a, k], state)
        changed[0], changed[1] = a, b
        slots = 1 if a == b else 2
        for c in range(slots):
            slot = changed[c]
            was_queued[c], was_load_s[c] = queued[slot], queues.load_s[slot]
            for x in range(queued[slot]):
                was_queue[c, x], was_release_s[c, x] = queue[slot, x], queues.release_s[queue[slot, x]]
        if not _change(instance, queues, a, k, b, state):
            continue
        new_s = excess_s
        for c in range(slots):
            slot = changed[c]
            _compute(instance, queues, slot)
            new_s += _over(queues.load_s[slot], latest_s[slot]) - _over(was_load_s[c], latest_s[slot])
        touched_count = 0
        if new_s <= excess_s:
            for c in range(slots):
                for x in range(queued[changed[c]]):
                    u = instance.requester[queue[changed[c], x]]
                    if touched_at[u] == step:
                        continue
                    touched_at[u] = step
                    touched[touched_count], was_end_s[touched_count] = u, link_end_s[u]
                    touched_count += 1
                    new_s -= _over(link_end_s[u], target_s)
                    link_end_s[u] = _requester_end_s(instance, queues, u)
                    new_s += _over(link_end_s[u], target_s)
        g, h = instance.responder[a], instance.responder[b]
        was_g_s, was_h_s = link_end_s[requesters + g], link_end_s[requesters + h]
        new_s -= _over(was_g_s, target_s)
        if g != h:
            new_s -= _over(was_h_s, target_s)
        if new_s <= excess_s:
            end_s = responder_end_s(instance, queues, g, target_s + excess_s - new_s, stamp)
            link_end_s[requesters + g] = end_s
            new_s += _over(end_s, target_s)
        else:
            new_s = np.inf
        if g != h and new_s <= excess_s:
            end_s = responder_end_s(instance, queues, h, target_s + excess_s - new_s, stamp)
            link_end_s[requesters + h] = end_s
            new_s += _over(end_s, target_s)
        if new_s <= excess_s:
            excess_s = new_s
            continue
        for x in range(touched_count):
            link_end_s[touched[x]] = was_end_s[x]
        link_end_s[requesters + g], link_end_s[requesters + h] = was_g_s, was_h_s
        for c in range(slots):
            slot = changed[c]
            queued[slot], queues.load_s[slot] = was_queued[c], was_load_s[c]
            for x in range(was_queued[c]):
                queue[slot, x] = was_queue[c, x]
                queues.release_s[queue[slot, x]] = was_release_s[c, x]
                queues.accelerator[queue[slot, x]] = slot
    return excess_s
