"""Debian's chromium, in which tests open the dashboard."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

CHROMIUM = "/usr/bin/chromium"
#: Longest wait for an element of a page: a busy machine is slow.
PATIENCE_MS = 60_000
#: Error of requests that chromium drops because an interface of this machine has changed; other tests change some.
DROPPED = "net::ERR_NETWORK_CHANGED"
#: How often a page is loaded at most.
LOADS = 5
expect.set_options(timeout=PATIENCE_MS)


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """Start the browser, without a sandbox because chromium has none for root."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def load(page: Page, url: str) -> None:
    """Load a page, again if chromium drops one of its requests."""
    dropped: list[str] = []

    def note(request: Request) -> None:
        if request.failure == DROPPED:
            dropped.append(request.url)

    page.on("requestfailed", note)
    try:
        for number in range(LOADS):
            dropped.clear()
            try:
                page.reload() if number else page.goto(url)
            except Error as error:
                if DROPPED not in error.message:
                    raise
                dropped.append(url)
            if not dropped:
                return
    finally:
        page.remove_listener("requestfailed", note)
    raise RuntimeError(f"{url}: chromium dropped requests in each of {LOADS} attempts, the last time {dropped}")


@dataclass
class Watched:
    """A page that records complaints: errors, warnings, dialogs, requests to other addresses, missing headers."""

    page: Page
    endpoint: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._check_message)
        self.page.on("pageerror", lambda error: self._note(f"{error.name}: {error.message}"))
        self.page.on("dialog", self._refuse)
        self.page.on("request", self._check_address)
        self.page.on("response", self._check_type)

    def _note(self, complaint: str) -> None:
        self.complaints.append(complaint)

    def _check_message(self, message: ConsoleMessage) -> None:
        # The page repeats a request that a busy pool answers with 503, and one that was dropped.
        if message.type in ("error", "warning") and not any(
            text in message.text for text in ("status of 503", DROPPED)
        ):
            self._note(message.text)

    def _refuse(self, dialog: Dialog) -> None:
        self._note(f"dialog {dialog.message}")
        dialog.dismiss()

    def _check_address(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.endpoint).netloc:
            self._note(f"request {request.url}")

    def _check_type(self, response: Response) -> None:
        if "/dashboard/" in response.url and response.headers.get("x-content-type-options") != "nosniff":
            self._note(f"{response.url}: its type may be guessed")

    def open(self, view: str) -> None:
        """Load a view."""
        load(self.page, f"{self.endpoint}/dashboard/#/{view}")

    def go(self, view: str) -> None:
        """Switch to a view within the loaded page."""
        self.page.get_by_role("navigation").get_by_role("link", name=view, exact=True).click()


@contextlib.contextmanager
def watched_page(browser: Browser, endpoint: str, *, scheme: str = "light") -> Iterator[Watched]:
    """Yield a new page; fail at the end if there are complaints about it."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    try:
        watched = Watched(context.new_page(), endpoint)
        yield watched
        assert not watched.complaints, watched.complaints
    finally:
        context.close()


def serious_findings(page: Page) -> list[tuple[str, list[list[str]]]]:
    """Return the serious and critical findings of axe-core, each with the first elements that it concerns."""
    return [
        (finding["id"], [node["target"] for node in finding["nodes"]][:5])
        for finding in Axe().run(page).response["violations"]
        if finding["impact"] in ("serious", "critical")
    ]
