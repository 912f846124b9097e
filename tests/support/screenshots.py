"""Screenshots of the dashboard: python -m support.screenshots DIRECTORY"""

import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import expect

from fpga_pool.client import Client, JobSpec
from fpga_pool.experiments.embedded import Options, embedded_pool
from support.browser import running_browser, watched_page

POOL: Options = {
    "standalone": {"hosts": 3, "requesters": 2},
    "driver_simulated": {"board": "demo"},
}
FUNCTIONS = ("sha256", "wordcount", "aes")
JOBS, INPUT_BYTES = 160, 3_000_000
VIEWS = ("pool", "schedule")


def draw(directory: Path) -> None:
    """Draw each view, light and dark, while a batch is computed."""
    jobs = [
        JobSpec(FUNCTIONS[n % len(FUNCTIONS)], b"some words " * (INPUT_BYTES // 11), requester=f"requester-{1 + n % 2}")
        for n in range(JOBS)
    ]
    with (
        tempfile.TemporaryDirectory() as state,
        embedded_pool(Path(state), POOL) as endpoint,
        Client(endpoint) as client,
    ):
        threading.Thread(target=client.run_jobs, args=(jobs,), kwargs={"name": "demo"}, daemon=True).start()
        with running_browser() as browser:
            for scheme in ("light", "dark"):
                with watched_page(browser, endpoint, scheme=scheme) as watched:
                    watched.open("pool")
                    expect(watched.page.locator(".slot[data-state=BUSY]").nth(3)).to_be_visible()
                    for view in VIEWS:
                        watched.go(view.title())
                        watched.page.wait_for_timeout(2500)  # two looks at the pool
                        watched.page.screenshot(path=directory / f"dashboard-{view}-{scheme}.png")


if __name__ == "__main__":
    (target,) = map(Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    draw(target)
