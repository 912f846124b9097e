"""What the dashboard of a large pool costs the browser: 10,000 slots, 1,000 running jobs, 200 of which end each second.

    pytest tests/benchmarks/test_dashboard.py -s

With ROUNDS=1 a view gets one update instead of six.

No pool is behind it: the answers have the form of the API's, made of the pool's classes, so that what is measured is
the page.  Prints for each view when something was painted first, when the map was complete, and the processor time of
the page's main thread per update, which is one answer of each list and, in views that show the present moment, what
moves until the next one: two steps a second.  Processor time, for other work on the machine makes elapsed time longer;
nothing is asserted about it, for it belongs to the machine.
"""

import os
import time

import pytest

from support.answers import FixedPool, served_answers
from support.browser import running_browser, watched_page

HOSTS, RUNNING, ENDING = 625, 1000, 200
#: What its time is made of, as Chromium calls the parts.
PARTS = {"script": "ScriptDuration", "styles": "RecalcStyleDuration", "layout": "LayoutDuration"}
ROUNDS = int(os.environ.get("ROUNDS", "6"))
SETTLED_MS, PATIENCE_S, LOOK_MS = 3000, 60.0, 500


class LivelyPool(FixedPool):
    """Goes on by a second with each question for its slots."""

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
    """What the main thread of a page has used, as Chromium counts it: seconds of processor time."""

    def __init__(self, page):
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def used(self):
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics if one["name"].endswith("Duration")}
