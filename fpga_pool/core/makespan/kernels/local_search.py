"""Compiled local search in reversed time: jobs are moved until every link and accelerator ends by a target.

In reversed time a slot computes its queue without a pause, and the inputs of computed jobs are sent.  A change is
judged by the times when links have sent all (`queues`), which approximate the makespan.  `local_search` changes the
queues in place.
"""

# Called functions are compiled into the caller, and numba's cache checks this file only: after a change of `queues` or
# of `loops`, touch this file too, or the old code is used.

import numpy as np

from fpga_pool.core.makespan.kernels.loops import _below, _uniform
from fpga_pool.core.makespan.kernels.queues import (
    compute,
    measure,
    requester_end_s,
    responder_end_s,
)
from fpga_pool.core.makespan.search.local_search import Queues
from fpga_pool.core.numba import compiled

__all__ = ["local_search", "measure"]

#: Steps spent on one late link; and one in this many changes is made on any slot.
_STEPS_PER_LINK, _ANYWHERE = 8, 8
#: Distance by which most changes within a slot move a job; and the relative deterioration that a change may cause.
_NEAR, _WORSE = 4, 2e-4
#: Of six changes between slots, one more than this number move a job; the others exchange two jobs.
_MOVES = 3
#: Candidates examined for an exchange, and their maximum distance from where the other job would be computed.
_LOOKED_AT, _BESIDE = 8, 2


@compiled(inner=True)
def _place_by_release(queues, a, release_s):  # type: ignore[no-untyped-def]
    """Return how many jobs of a slot's queue are computed before `release_s`."""
    k = 0
    while k < queues.queued[a] and queues.release_s[queues.queue[a, k]] < release_s:
        k += 1
    return k


@compiled(inner=True)
def _partner(instance, queues, a, b, near, state):  # type: ignore[no-untyped-def]
    """Return the position of a job of slot b that gains most, or loses least, on slot a, of a few drawn at random.

    They are drawn around position `near`, or from the whole queue if that is -1.  Most jobs would take much longer on
    another slot, so an exchange with a job chosen at random is hardly ever kept.
    """
    queue, queued, seconds = queues.queue, queues.queued[b], instance.seconds
    best, i = -1, -1
    for _ in range(_LOOKED_AT):
        if near < 0:
            x = _below(state, queued)
        else:
            x = max(0, min(queued - 1, near - _BESIDE + _below(state, 2 * _BESIDE + 1)))
        j = queue[b, x]
        if best < 0 or seconds[j, a] * seconds[i, b] < seconds[i, a] * seconds[j, b]:
            best, i = x, j
    return best


@compiled(inner=True)
def _change(instance, queues, a, k, b, state):  # type: ignore[no-untyped-def]
    """Move job k of slot a within its queue or to slot b, or exchange it with one of b; return whether that works."""
    queue, queued = queues.queue, queues.queued
    i = queue[a, k]
    if a == b:
        other = _below(state, queued[a])
        if _below(state, 4) > 0:
            other = max(0, min(queued[a] - 1, k - _NEAR + _below(state, 2 * _NEAR + 1)))
        if other == k:
            return False
        step = 1 if other > k else -1
        while k != other:
            queue[a, k] = queue[a, k + step]
            k += step
        queue[a, other] = i
        return True
    kind = max(0, _below(state, 6) - _MOVES)
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
    near = _place_by_release(queues, b, queues.release_s[i]) if kind == 1 else -1
    other = _partner(instance, queues, a, b, near, state)
    j = queue[b, other]
    if instance.seconds[j, a] == np.inf:
        return False
    queue[a, k], queue[b, other] = j, i
    queues.accelerator[i], queues.accelerator[j] = b, a
    return True


@compiled(inner=True)
def _over(end_s, target_s):  # type: ignore[no-untyped-def]
    return max(0.0, end_s - target_s)


@compiled(inner=True)
def _pick(instance, queues, late, state):  # type: ignore[no-untyped-def]
    """Return a slot and a position in its queue (-1 = no job); mostly a job that crosses the link `late`."""
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


@compiled(inner=True)
def _other_slot(instance, a, i, state):  # type: ignore[no-untyped-def]
    """Return a slot for job i of slot a: mostly slot a itself, else mostly one where the job is quick."""
    kind = _below(state, 8)
    if kind < 5:
        return a
    if kind == 5:
        return _below(state, len(instance.responder))
    return instance.quick[i, _below(state, instance.quick.shape[1])]


@compiled(inner=True)
def _copy(instance, source, target, slots, requesters):  # type: ignore[no-untyped-def]
    """Copy the state that a change of the queues of `slots` and the transfers of `requesters` can have altered."""
    for a in slots:
        target.queued[a], target.load_s[a] = source.queued[a], source.load_s[a]
        for x in range(source.queued[a]):
            i = source.queue[a, x]
            target.queue[a, x] = i
            target.accelerator[i], target.release_s[i] = a, source.release_s[i]
    for u in requesters:
        for k in range(instance.first_job[u], instance.first_job[u + 1]):
            target.start_s[instance.job_of[k]] = source.start_s[instance.job_of[k]]
        target.link_end_s[u] = source.link_end_s[u]
    for link in range(len(instance.egress_bps), len(source.link_end_s)):
        target.link_end_s[link] = source.link_end_s[link]


@compiled(inner=True)
def _resend(instance, queues, kept, slots, touched, delayed, flow):  # type: ignore[no-untyped-def]
    """Recompute the transfers of the requesters affected by a change of `slots`; write these, and return their number.

    Marks in `delayed` (H,) the responders that receive an input at another time; `flow` (J,) is scratch.
    """
    count = 0
    for a in slots:
        for x in range(queues.queued[a]):
            i = queues.queue[a, x]
            u = instance.requester[i]
            if queues.release_s[i] == kept.release_s[i] and queues.accelerator[i] == kept.accelerator[i]:
                continue
            known = False
            for y in range(count):
                known |= touched[y] == u
            if not known:
                touched[count] = u
                count += 1
    for u in touched[:count]:
        queues.link_end_s[u] = requester_end_s(instance, queues, u, flow)
        for k in range(instance.first_job[u], instance.first_job[u + 1]):
            i = instance.job_of[k]
            if queues.start_s[i] != kept.start_s[i]:
                delayed[instance.responder[queues.accelerator[i]]] = True
    return count


@compiled(inner=True)
def _receive_again(instance, queues, slots, excess_s, delayed, stamp):  # type: ignore[no-untyped-def]
    """Recompute when the `delayed` responders have received all, those of `slots` first; return the new excess.

    `excess_s` contains the excess so far, the largest acceptable excess, and the target.  Stops as soon as the excess
    is not acceptable.
    """
    requesters, hosts = len(instance.egress_bps), len(instance.ingress_bps)
    new_s, at_most_s, target_s = excess_s
    for turn in range(-len(slots), hosts):
        h = turn if turn >= 0 else instance.responder[slots[turn + len(slots)]]
        if not delayed[h]:
            continue
        delayed[h] = False
        new_s -= _over(queues.link_end_s[requesters + h], target_s)
        if new_s > at_most_s:
            break
        end_s = responder_end_s(instance, queues, h, target_s + at_most_s - new_s, stamp)
        queues.link_end_s[requesters + h] = end_s
        new_s += _over(end_s, target_s)
        if new_s > at_most_s:
            break
    return new_s


@compiled(inner=True)
def _late_link(queues, target_s, state):  # type: ignore[no-untyped-def]
    """Return a random link of those that end after the target; -1 if there is none."""
    seen, late = 0, -1
    for link in range(len(queues.link_end_s)):
        if queues.link_end_s[link] > target_s:
            seen += 1
            if _below(state, seen) == 0:
                late = link
    return late


@compiled()
def local_search(instance, queues, latest_s, target_s, steps, state):  # type: ignore[no-untyped-def]
    """Try `steps` changes; keep those that hardly increase the total excess of links and slots over their targets.

    `latest_s` (A,) is the target of the slots.  The queues must have been measured.  Returns the remaining excess; the
    search stops when it is 0.
    """
    requesters, hosts = len(instance.egress_bps), len(instance.ingress_bps)
    queue, load_s, link_end_s = queues.queue, queues.load_s, queues.link_end_s
    kept = Queues(
        queues.accelerator.copy(), queue.copy(), queues.queued.copy(), queues.release_s.copy(), queues.start_s.copy(),
        load_s.copy(), link_end_s.copy(),
    )  # fmt: skip
    stamp, delayed = np.zeros(requesters + 1, np.int64), np.zeros(hosts, np.bool_)
    changed, touched = np.zeros(2, np.int64), np.empty(requesters, np.int64)
    flow = np.empty(len(instance.bits), np.int64)
    excess, excess_s, late = np.zeros(3), 0.0, -1
    for a in range(len(load_s)):
        excess_s += _over(load_s[a], latest_s[a])
    for end_s in link_end_s:
        excess_s += _over(end_s, target_s)
    for step in range(steps):
        if excess_s <= 0.0:
            break
        if step % _STEPS_PER_LINK == 0:
            late = _late_link(queues, target_s, state)
        a, k = _pick(instance, queues, late, state)
        if k < 0:
            continue
        b = _other_slot(instance, a, queue[a, k], state)
        changed[0], changed[1] = a, b
        slots = changed[: 1 if a == b else 2]
        if not _change(instance, queues, a, k, b, state):
            continue
        at_most_s = excess_s * (1.0 + _WORSE * _uniform(state))
        new_s, count = excess_s, 0
        for slot in slots:
            compute(instance, queues, slot)
            new_s += _over(load_s[slot], latest_s[slot]) - _over(kept.load_s[slot], latest_s[slot])
        if new_s <= at_most_s:
            delayed[:] = False
            delayed[instance.responder[a]] = delayed[instance.responder[b]] = True
            count = _resend(instance, queues, kept, slots, touched, delayed, flow)
            for u in touched[:count]:
                new_s += _over(link_end_s[u], target_s) - _over(kept.link_end_s[u], target_s)
            excess[0], excess[1], excess[2] = new_s, at_most_s, target_s
            new_s = _receive_again(instance, queues, slots, excess, delayed, stamp)
        if new_s <= at_most_s:
            excess_s = new_s
            _copy(instance, queues, kept, slots, touched[:count])
        else:
            _copy(instance, kept, queues, slots, touched[:count])
    return excess_s
