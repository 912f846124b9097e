"""The browser's cost of the dashboard for a large pool: 10,000 slots, 1,000 running jobs, 200 of which end each second.

    pytest tests/benchmarks/test_dashboard.py -s

With ROUNDS=1 a view gets one update instead of six.

Responses in the API's format are generated from the pool's classes, without a pool, so that the page alone is measured.
Prints for each view the times of the first paint and of the complete drawing, and the CPU time of the page's main
thread per update.  An update consists of one response of each list and, in views that show the current time, of the
animation until the next one: two steps a second.  CPU time is used because other load on the machine increases elapsed
time; it is not asserted, as it depends on the machine.
"""

import os
import time

import pytest

from support.answers import FixedPool, served_answers
from support.browser import running_browser, watched_page

HOSTS, RUNNING, ENDING = 625, 1000, 200
#: Parts of the CPU time, and Chromium's names of them.
PARTS = {"script": "ScriptDuration", "styles": "RecalcStyleDuration", "layout": "LayoutDuration"}
ROUNDS = int(os.environ.get("ROUNDS", "6"))
SETTLED_MS, PATIENCE_S, LOOK_MS = 3000, 60.0, 500


class LivelyPool(FixedPool):
    """Advances by a second with each request for its slots."""

    def __init__(self):
        self.began_s = time.monotonic()
        super().__init__(HOSTS, RUNNING)

    def now_s(self):
        return super().now_s() + time.monotonic() - self.began_s

    def answer(self, path):
        if path == "/v1/slots":
            self.turn(ENDING)
        return super().answer(path)


@pytest.fixture(scope="module")
def browser():
    with running_browser() as browser:
        yield browser


@pytest.mark.parametrize("view", ["pool", "queue", "schedule", "egress", "tiers"])
def test_dashboard_of_a_large_pool(browser, view):
    pool = LivelyPool()
    with served_answers(pool.answer) as endpoint, watched_page(browser, endpoint) as watched:
        page = watched.page
        main_thread = MainThread(page)
        watched.open(view)
        if view == "pool":
            page.locator(".slot").nth(len(pool.slots) - 1).wait_for(state="attached")
        complete_ms = page.evaluate("performance.now()")
        page.wait_for_timeout(SETTLED_MS)
        paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        begun, used, began_s = pool.rounds, main_thread.used(), time.monotonic()
        while (rounds := pool.rounds - begun) < ROUNDS and time.monotonic() < began_s + PATIENCE_S:
            page.wait_for_timeout(LOOK_MS)
        page.wait_for_timeout(LOOK_MS)
        used = {name: 1000 * (now - used[name]) / max(rounds, 1) for name, now in main_thread.used().items()}
        took_s = time.monotonic() - began_s
    parts = ", ".join(f"{name} {used[part]:.0f}" for name, part in PARTS.items())
    print(
        f"\n{view:9} first paint {paint_ms:4.0f} ms, drawn {complete_ms:4.0f} ms; {rounds} updates in {took_s:2.0f} s,"
        f" each {used['TaskDuration']:4.0f} ms ({parts})"
    )
    assert rounds > 0


class MainThread:
    """CPU time of the main thread of a page, as counted by Chromium, in seconds."""

    def __init__(self, page):
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def used(self):
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics if one["name"].endswith("Duration")}
