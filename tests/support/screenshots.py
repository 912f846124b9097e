"""Screenshots of the dashboard: python -m support.screenshots DIRECTORY"""

import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Browser, expect

from fpga_pool.client import Client, JobSpec
from fpga_pool.experiments.embedded import Options, embedded_pool
from support.browser import running_browser, watched_page

POOL: Options = {
    "standalone": {"hosts": 3, "requesters": 2},
    "driver_simulated": {"board": "demo"},
}
FUNCTIONS = ("sha256", "wordcount", "aes")
JOBS, INPUT_BYTES = 54, 3_000_000
#: Time in which a page has polled the pool twice.
SEEN_MS = 2500
#: Time for a batch, including its start.
DRAWN_MS = 20_000


def draw(directory: Path) -> None:
    """Take screenshots of the schedule of a batch that has ended, light and dark, and of the pool at work."""
    jobs = [
        JobSpec(FUNCTIONS[n % len(FUNCTIONS)], b"some words " * (INPUT_BYTES // 11), requester=f"requester-{1 + n % 2}")
        for n in range(JOBS)
    ]
    with (
        tempfile.TemporaryDirectory() as state,
        embedded_pool(Path(state), POOL) as endpoint,
        Client(endpoint) as client,
    ):
        # Run the batch before the browser starts: the browser's load would show in the schedule.
        client.run_jobs(jobs, name="demo")
        with running_browser() as browser:
            for scheme in ("light", "dark"):
                _draw(browser, endpoint, "schedule", [".gantt .load", ".gantt .moved"], scheme, directory)
            drawn = threading.Event()

            def compute() -> None:
                while not drawn.is_set():
                    client.run_jobs(jobs)

            more = threading.Thread(target=compute, daemon=True)
            more.start()
            busy = [f".slot[data-state=BUSY]:has-text('{function}')" for function in FUNCTIONS]
            _draw(browser, endpoint, "pool", busy, "light", directory)
            drawn.set()
        more.join()


def _draw(browser: Browser, endpoint: str, view: str, parts: list[str], scheme: str, directory: Path) -> None:
    """Take a screenshot of a view as soon as one element of each of these selectors is visible."""
    with watched_page(browser, endpoint, scheme=scheme) as watched:
        watched.page.set_viewport_size({"width": 1440, "height": 760})
        watched.open(view)
        watched.page.wait_for_timeout(SEEN_MS)
        for part in parts:
            expect(watched.page.locator(part).first).to_be_visible(timeout=DRAWN_MS)
        watched.page.screenshot(path=directory / f"dashboard-{view}-{scheme}.png", animations="disabled")


if __name__ == "__main__":
    (target,) = map(Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    draw(target)
