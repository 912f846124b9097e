"""Compiled loops for batches that compute and transmit: placement and fluid transfers.

In the arrays named `link_...`, the R requesters come first, then the H responders.  See `loops` for how the functions
are compiled.
"""

from heapq import heappop, heappush

import numpy as np

from fpga_pool.core.numba import compiled

_NOISE = 1e-9
_SAME = 1e-12
#: Number of events after which the flows are sorted again by how much their links have left to send.
_RESORT = 4
_MATRIX = "Array(float64, 2, 'C', readonly=True)"
_REALS, _WHOLES = "float64[::1]", "int64[::1]"


@compiled(
    f"void({_MATRIX}, {', '.join([_WHOLES] * 3 + [_REALS] * 3 + [_WHOLES] * 3 + [_REALS] * 4 + [_WHOLES] * 2)},"
    " float64)",
)
def place(  # type: ignore[no-untyped-def]
    seconds, order, requester, responder, bits, egress_s_per_bit, ingress_s_per_bit, local_host, function, loaded,
    load_s, release_s, free_s, ingress_s, port, accelerator,
    ingress_cap_s,
):  # fmt: skip
    """Place each job of `order` where it would end first: `greedy.place`, compiled; ties go to the least ingress work.

    No responder gets more ingress than `ingress_cap_s`, or than the smallest possible if all would exceed that.
    `free_s` (A,), initially the times from which slots may load, `loaded` (A,), and `ingress_s` (H,), initially zeros,
    are modified.
    """
    # For each port, numbered 0..A - 1, the end of the uninterrupted loads from the start on.
    port_s = np.full(len(port), free_s.min())
    egress_s = np.zeros(len(egress_s_per_bit))
    hosts = len(ingress_s_per_bit)
    arrival_s = np.empty(hosts)
    for i in order:
        u = requester[i]
        own_egress_s = bits[i] * egress_s_per_bit[u]
        for h in range(hosts):
            own_ingress_s = bits[i] * ingress_s_per_bit[h]
            alone_s = release_s[i] + max(own_ingress_s, own_egress_s)
            arrival_s[h] = max(alone_s, ingress_s[h] + own_ingress_s, egress_s[u] + own_egress_s)
            if bits[i] == 0.0 or local_host[u] == h:
                arrival_s[h] = release_s[i]
        best, best_s = -1, np.inf
        least_s = np.inf
        for a in range(len(responder)):
            if local_host[u] != responder[a] and seconds[i, a] < np.inf:
                h = responder[a]
                least_s = min(least_s, ingress_s[h] + bits[i] * ingress_s_per_bit[h])
        cap_s = max(ingress_cap_s, least_s)
        for a in range(len(responder)):
            h = responder[a]
            if local_host[u] != h and ingress_s[h] + bits[i] * ingress_s_per_bit[h] > cap_s:
                continue
            ready_s = free_s[a] if loaded[a] == function[i] else max(free_s[a], port_s[port[a]]) + load_s[a]
            end_s = max(ready_s, arrival_s[responder[a]]) + seconds[i, a]
            if end_s < best_s * (1 - _SAME) or (
                end_s <= best_s * (1 + _SAME)
                and (best < 0 or ingress_s[responder[a]] < ingress_s[responder[best]])
                and end_s < np.inf
            ):
                best = a
                best_s = end_s
        accelerator[i] = best
        if loaded[best] != function[i] and free_s[best] <= port_s[port[best]]:
            port_s[port[best]] += load_s[best]
        free_s[best] = best_s
        loaded[best] = function[i]
        h = responder[best]
        if local_host[u] != h:
            egress_s[u] += own_egress_s
            ingress_s[h] += bits[i] * ingress_s_per_bit[h]


@compiled(
    f"int64({', '.join([_WHOLES] * 3 + [_REALS] * 5 + ['float64'] + [_WHOLES] + [_REALS] * 3)})",
)
def transmit(  # type: ignore[no-untyped-def]
    rank, requester, responder, bits, release_s, egress_bps, ingress_bps, arrived_s, other_weight, segment_flow,
    segment_begin_s, segment_end_s, segment_bps,
):  # fmt: skip
    """Transfer flows (F,) from their releases on; each in turn takes all that both its links have left.

    They take turns by `rank`, lowest first.  If `other_weight` is not negative, they take turns by the seconds that the
    busier of their links has left to send, released or not, plus that weight times those of the other link, largest
    first.  Writes `arrived_s` (F,) and the segments; returns the number of segments, -1 if they do not fit.
    """
    flows, requesters = len(bits), len(egress_bps)
    link_bps = np.concatenate((egress_bps, ingress_bps))
    noise_bps = np.where(np.isfinite(link_bps), _NOISE * link_bps, 0.0)
    out_link, in_link = requester, responder + requesters
    # The seconds that links have left to send, released or not, and the number of active flows on each.
    link_left_s, link_flows = np.zeros(len(link_bps)), np.zeros(len(link_bps), np.int64)
    for i in range(flows):
        link_left_s[out_link[i]] += bits[i] / link_bps[out_link[i]]
        link_left_s[in_link[i]] += bits[i] / link_bps[in_link[i]]
    by_release = np.argsort(release_s, kind="mergesort")
    left, since_s, end_s, rate_bps = bits.copy(), np.zeros(flows), np.full(flows, np.inf), np.zeros(flows)
    key, ended = rank.astype(np.float64), np.zeros(flows, np.bool_)
    active, served, was_served = np.empty(flows, np.int64), np.empty(flows, np.int64), np.empty(flows, np.int64)
    new_bps = np.zeros(flows)
    count, gone, released, done, serving, segments, event, now_s = 0, 0, 0, 0, 0, 0, 0, 0.0
    while done < flows:
        unsorted = count
        while released < flows and release_s[by_release[released]] <= now_s:
            i = by_release[released]
            active[count] = i
            link_flows[out_link[i]] += 1
            link_flows[in_link[i]] += 1
            count += 1
            released += 1
        if other_weight >= 0.0 and (unsorted < count or event % _RESORT == 0):
            unsorted = 0
            for x in range(count):
                out_s, in_s = link_left_s[out_link[active[x]]], link_left_s[in_link[active[x]]]
                key[active[x]] = -max(out_s, in_s) - other_weight * min(out_s, in_s)
        for x in range(unsorted, count):
            i, y = active[x], x
            while y > 0 and key[active[y - 1]] > key[i]:
                active[y] = active[y - 1]
                y -= 1
            active[y] = i
        event += 1
        residual_bps = link_bps.copy()
        open_out, open_in = (link_flows[:requesters] > 0).sum(), (link_flows[requesters:] > 0).sum()
        for x in range(serving):
            was_served[x] = served[x]
            new_bps[served[x]] = 0.0
        was_serving, serving = serving, 0
        for x in range(count):
            if open_out == 0 or open_in == 0:
                break
            i = active[x]
            u, h = out_link[i], in_link[i]
            if ended[i] or residual_bps[u] <= 0.0 or residual_bps[h] <= 0.0:
                continue
            bps = min(residual_bps[u], residual_bps[h])
            residual_bps[u] -= bps
            residual_bps[h] -= bps
            if residual_bps[u] <= noise_bps[u]:
                residual_bps[u] = 0.0
                open_out -= 1
            if residual_bps[h] <= noise_bps[h]:
                residual_bps[h] = 0.0
                open_in -= 1
            new_bps[i] = bps
            served[serving] = i
            serving += 1
        for x in range(was_serving + serving):
            i = was_served[x] if x < was_serving else served[x - was_serving]
            if ended[i] or new_bps[i] == rate_bps[i]:
                continue
            if rate_bps[i] > 0.0 and since_s[i] < now_s:
                if segments == len(segment_flow):
                    return -1
                segment_flow[segments], segment_begin_s[segments] = i, since_s[i]
                segment_end_s[segments], segment_bps[segments] = now_s, rate_bps[i]
                segments += 1
                left[i] = max(0.0, left[i] - rate_bps[i] * (now_s - since_s[i]))
            since_s[i] = now_s
            rate_bps[i] = new_bps[i]
            # A transfer takes time even if the clock is too coarse to show it.
            end_s[i] = max(now_s + left[i] / new_bps[i], np.nextafter(now_s, np.inf)) if new_bps[i] > 0.0 else np.inf
        next_s = release_s[by_release[released]] if released < flows else np.inf
        for x in range(serving):
            next_s = min(next_s, end_s[served[x]])
        last_s = next_s
        for x in range(serving):
            i = served[x]
            bits_now = rate_bps[i] * (min(end_s[i], next_s) - now_s)
            link_left_s[out_link[i]] -= bits_now / link_bps[out_link[i]]
            link_left_s[in_link[i]] -= bits_now / link_bps[in_link[i]]
            if end_s[i] > next_s * (1 + _SAME):
                continue
            if segments == len(segment_flow):
                return -1
            segment_flow[segments], segment_begin_s[segments] = i, since_s[i]
            segment_end_s[segments], segment_bps[segments] = end_s[i], left[i] / (end_s[i] - since_s[i])
            segments += 1
            arrived_s[i] = end_s[i]
            last_s = max(last_s, end_s[i])
            ended[i] = True
            link_flows[out_link[i]] -= 1
            link_flows[in_link[i]] -= 1
            done += 1
            gone += 1
        now_s = last_s
        if 4 * gone > count:
            kept = 0
            for x in range(count):
                if not ended[active[x]]:
                    active[kept] = active[x]
                    kept += 1
            count, gone = kept, 0
    return segments


@compiled(
    f"void({_MATRIX}, {', '.join([_WHOLES] * 3 + [_REALS] * 3 + [_WHOLES] + [_REALS] * 3)},"
    f" {_REALS}, {_REALS}, {_WHOLES})",
)
def spread(  # type: ignore[no-untyped-def]
    seconds, sequence, requester, responder, bits, ingress_s_per_bit, due_s, local_host, latest_s, prices,
    ingress_cap_s, load_s, ingress_s, accelerator,
):  # fmt: skip
    """Place the jobs in `sequence`, each on the cheapest accelerator that ends it by its due time.

    Time is reversed: a job first computes, then sends.  An accelerator takes no work beyond `latest_s` (A,), a
    responder no ingress beyond `ingress_cap_s` (H,).  If no accelerator is possible, the one with the smallest excess
    is used.  `prices` (A + H,) are of compute and ingress.
    """
    accelerators = len(responder)
    for i in sequence:
        best, least, first, excess_s = -1, np.inf, -1, np.inf
        for a in range(accelerators):
            h = responder[a]
            sends_s = 0.0 if local_host[requester[i]] == h else bits[i] * ingress_s_per_bit[h]
            late_s = load_s[a] + seconds[i, a] - min(due_s[i], latest_s[a])
            over_s = max(late_s, ingress_s[h] + sends_s - ingress_cap_s[h])
            if over_s <= 0.0:
                cost = prices[a] * seconds[i, a] + prices[accelerators + h] * sends_s
                if cost < least:
                    least = cost
                    best = a
            elif over_s < excess_s:
                excess_s = over_s
                first = a
        if best < 0:
            best = first
        accelerator[i] = best
        load_s[best] += seconds[i, best]
        h = responder[best]
        if local_host[requester[i]] != h:
            ingress_s[h] += bits[i] * ingress_s_per_bit[h]


@compiled(
    f"float64({_MATRIX}, {_WHOLES}, {_REALS}, {_REALS}, int64, {_REALS})",
)
def price(seconds, responder, bits, ingress_s_per_bit, steps, prices):  # type: ignore[no-untyped-def]
    """Find `prices` (A + H,) of compute and ingress by multiplicative ascent; return the jobs' total cost."""
    jobs, accelerators = seconds.shape
    rows = accelerators + len(ingress_s_per_bit)
    now = np.full(rows, 1.0 / rows)
    work_s = np.zeros(rows)
    best_s = -1.0
    for step in range(steps):
        work_s[:] = 0.0
        total_s = 0.0
        for i in range(jobs):
            best, least = 0, np.inf
            for a in range(accelerators):
                h = responder[a]
                cost = now[a] * seconds[i, a] + now[accelerators + h] * bits[i] * ingress_s_per_bit[h]
                if cost < least:
                    least = cost
                    best = a
            total_s += least
            work_s[best] += seconds[i, best]
            work_s[accelerators + responder[best]] += bits[i] * ingress_s_per_bit[responder[best]]
        if total_s > best_s:
            best_s = total_s
            prices[:] = now
        if total_s <= 0.0:
            break
        length = 0.004 ** (step / steps)
        for row in range(rows):
            now[row] *= np.exp(length * min(2.0, max(-1.0, work_s[row] / total_s - 1.0)))
            now[row] = max(now[row], 1e-9 / rows)
        now /= now.sum()
    return best_s


@compiled(f"void({_MATRIX}, {_WHOLES}, {_REALS}, {_REALS})")
def longest_last(seconds, accelerator, due_s, release_s):  # type: ignore[no-untyped-def]
    """Order the queue of each accelerator: from its end backwards, the longest job that may be released that late.

    This is Smith's rule for due times (J,).  If all due times are earlier, the job with the latest one is taken.
    Writes the release time of each job (J,).
    """
    jobs, accelerators = seconds.shape
    queued, now_s = np.zeros(accelerators, np.int64), np.zeros(accelerators)
    for i in range(jobs):
        queued[accelerator[i]] += 1
        now_s[accelerator[i]] += seconds[i, accelerator[i]]
    by_due = np.argsort(-due_s, kind="mergesort")
    by_slot = by_due[np.argsort(accelerator[by_due], kind="mergesort")]
    # Heap of the jobs that may be released last, longest first; the entry defines the type for the compiler.
    waiting = [(0.0, 0)]
    begin = 0
    for a in range(accelerators):
        waiting.clear()
        place, end = begin, begin + queued[a]
        while place < end or len(waiting) > 0:
            reach_s = now_s[a]
            if len(waiting) == 0:
                reach_s = min(reach_s, due_s[by_slot[place]])
            while place < end and due_s[by_slot[place]] >= reach_s:
                i = by_slot[place]
                heappush(waiting, (-seconds[i, a], i))
                place += 1
            i = heappop(waiting)[1]
            release_s[i] = now_s[a]
            now_s[a] -= seconds[i, a]
        begin = end
