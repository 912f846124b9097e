"""The dashboard as its users see it: in a browser, with an embedded pool that runs jobs."""

import re
import threading
from uuid import uuid4

import pytest
import requests
from playwright.sync_api import expect

from fpga_pool.client import Client, JobSpec
from fpga_pool.experiments.embedded import embedded_pool
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.gangs import GangState
from fpga_pool.model.objects.pool import SlotState
from support.browser import running_browser, serious_findings, watched_page
from support.waiting import SOON_S, wait_until

VIEWS = ("Pool", "Queue", "Schedule", "Egress", "Tiers", "Usage")
#: Runs as a script if a name gets into the page as markup.
HOSTILE = "<img src=x onerror=alert(1)>"
POOL = {
    "standalone": {"hosts": 2, "requesters": 1, "gang_processors": 1},
    "driver_simulated": {"board": "demo"},
    "scheduler": {"interval_s": 0.2, "dispatch_lead_s": 0.05},
}
JOBS = 6
#: Returns the boxes of a job's real transfer, arrival and planned transfer at one moment, as updates draw them again.
BOXES_OF_JOB = """name => [".moved", ".arrival", ".transfer"].map(part =>
    document.querySelector(`.gantt [aria-label^="${name}: "] ${part}`).getBoundingClientRect().toJSON())"""


class Pool:
    """An embedded pool with empty slots, and one batch, which a test starts when it is ready to observe it."""

    def __init__(self, endpoint):
        self.endpoint, self.client = endpoint, Client(endpoint)
        specs = [
            JobSpec(function, b"some words " * 100_000, requester="requester-1", name=f"{HOSTILE}{number}")
            for number, function in enumerate(["sha256", "wordcount"] * (JOBS // 2))
        ]
        options = {"name": HOSTILE}
        self._batch = threading.Thread(target=self.client.run_jobs, args=(specs,), kwargs=options, daemon=True)

    def begin_batch(self):
        if self._batch.ident is None:
            self._batch.start()

    def end_batch(self):
        self.begin_batch()
        self._batch.join(SOON_S)
        assert not self._batch.is_alive(), "the batch does not end"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    with embedded_pool(tmp_path_factory.mktemp("pool"), POOL) as endpoint:
        pool = Pool(endpoint)
        yield pool
        pool.client.close()


@pytest.fixture(scope="module")
def browser():
    with running_browser() as browser:
        yield browser


@pytest.fixture
def dashboard(browser, pool):
    with watched_page(browser, pool.endpoint) as watched:
        yield watched


def test_a_host_is_shown_with_what_it_has_measured(pool, dashboard):
    (load,) = wait_until(lambda: pool.client.counters("requester-1"), "the agent has measured its host")
    page = dashboard.page
    dashboard.open("pool")
    page.get_by_role("button", name="requester-1").click()
    detail = page.get_by_role("complementary", name="Detail")
    expect(detail.locator("dt").filter(has_text=re.compile("^busy cpus$"))).to_be_visible()
    value = detail.locator("dt").filter(has_text=re.compile("^cpus$")).locator("xpath=following-sibling::dd[1]")
    expect(value).to_have_text(f"{load.counters.cpus:.0f}")


def test_an_operator_sees_work_of_another_project_and_cancels_it(pool, dashboard):
    page = dashboard.page
    with Client(pool.endpoint, project_id="other") as other:
        job = JobRequest(uuid=str(uuid4()), function="sha256", requester="requester-1", input_bytes=10)
        batch = other.create_batch([job], name="never sent", held=True)
        dashboard.open("queue")
        row = page.get_by_role("row").filter(has_text="never sent")
        switch = page.get_by_role("checkbox", name="All projects")
        expect(switch).not_to_be_checked()
        expect(row).to_have_count(0)
        switch.focus()
        page.keyboard.press("Space")
        expect(row.locator(".note", has_text="other")).to_be_visible()
        assert serious_findings(page) == []
        row.get_by_role("button", name="never sent").click()
        page.get_by_role("complementary", name="Detail").get_by_role("button", name="Cancel").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel the batch").click()
        wait_until(lambda: other.batch(batch.uuid).cancel_requested, "the batch is cancelled")
        switch.uncheck()
        expect(row).to_have_count(0)
        expect(page.get_by_role("complementary", name="Detail")).to_be_hidden()


def test_a_batch_is_seen_from_its_slots_to_its_jobs(pool, dashboard):
    page = dashboard.page
    dashboard.open("pool")
    expect(page.locator(".slot[data-state=EMPTY]")).to_have_count(len(pool.client.slots()))
    pool.begin_batch()
    expect(page.locator(".slot[data-state=READY][data-function=sha256]").first).to_be_visible()

    dashboard.go("Queue")
    row = page.get_by_role("row").filter(has_text=HOSTILE)
    expect(row.get_by_text(f"{JOBS} of {JOBS} jobs")).to_be_visible()
    expect(row.locator(".badge")).to_have_text("completed")
    expect(row.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"^\d.* of planned \d.*, lower bound \d"))

    dashboard.go("Schedule")
    marks = page.locator(".gantt .job")
    expect(marks).to_have_count(JOBS)
    expect(page.locator(".gantt .mark.bound, .gantt .mark.planned")).to_have_count(2)
    expect(page.locator(".gantt .load").first).to_be_attached()
    marks.first.focus()
    page.keyboard.press("Enter")
    detail = page.get_by_role("complementary", name="Detail")
    expect(detail.get_by_role("heading", level=2)).to_contain_text(f"job {HOSTILE}")
    expect(detail.get_by_role("heading", name="Planned input")).to_be_visible()
    expect(detail.get_by_role("listitem").filter(has_text="JobStarted")).to_be_visible()
    assert page.locator("main img, aside img").count() == 0
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()

    dashboard.go("Egress")
    expect(page.locator("figure figcaption")).to_contain_text("requester-1")
    expect(page.locator("figure .flow")).to_have_count(JOBS)

    dashboard.go("Usage")
    row = page.get_by_role("row").filter(has_text="sha256")
    expect(row.get_by_role("cell").nth(1)).to_have_text(str(JOBS // 2))
    row.get_by_role("button", name="sha256").click()
    expect(detail.get_by_role("heading", level=2)).to_have_text("usage of demo/sha256")
    detail.get_by_role("button", name=HOSTILE).first.click()
    expect(detail.get_by_role("heading", level=2)).to_contain_text(f"job {HOSTILE}")
    assert page.locator("main img, aside img").count() == 0


def test_a_slot_is_drained_and_resumed_by_keyboard(pool, dashboard):
    page, client = dashboard.page, pool.client
    second = sorted(client.slots(), key=lambda slot: slot.name)[1]
    tile = page.locator(f".slot[data-uuid='{second.uuid}']")
    dashboard.open("pool")
    page.locator(".slot").first.focus()
    page.keyboard.press("ArrowRight")
    expect(tile).to_be_focused()
    page.keyboard.press("Enter")
    detail = page.get_by_role("complementary", name="Detail")
    expect(detail.get_by_role("heading", level=2)).to_have_text(f"slot {second.name}")
    detail.get_by_role("button", name="Drain").press("Enter")
    page.get_by_role("textbox", name="Reason").fill(HOSTILE)
    page.keyboard.press("Enter")
    expect(tile).to_have_attribute("data-state", "DRAINED")
    expect(detail.get_by_text(HOSTILE).first).to_be_visible()
    drained = client.slot(second.uuid).slot
    assert (drained.state, drained.reason) == (SlotState.DRAINED, HOSTILE)
    detail.get_by_role("button", name="Resume").press("Enter")
    expect(tile).not_to_have_attribute("data-state", "DRAINED")
    assert not client.slot(second.uuid).slot.drain_requested


def test_a_card_and_a_host_are_drained_and_resumed(pool, dashboard):
    page, client = dashboard.page, pool.client
    detail, title = page.locator("#detail"), page.locator("#detail h2")
    first = min(client.slots(), key=lambda slot: slot.name)
    card = f"{first.host}/{first.card}"

    def drained():
        return {slot.name for slot in client.slots() if slot.drain_requested}

    def drain():
        detail.get_by_role("button", name="Drain").press("Enter")
        page.get_by_role("textbox", name="Reason").fill(HOSTILE)
        page.keyboard.press("Enter")
        expect(detail.get_by_role("button", name="Drain")).to_have_count(0)

    def resume():
        detail.get_by_role("button", name="Resume").press("Enter")
        expect(detail.get_by_role("button", name="Resume")).to_have_count(0)
        assert drained() == set()

    dashboard.open("pool")
    page.locator(f".slot[data-uuid='{first.uuid}']").click()
    detail.get_by_role("button", name=first.card, exact=True).press("Enter")
    expect(title).to_have_text(f"card {card}")
    expect(detail.get_by_role("heading", name="Links")).to_be_visible()
    assert serious_findings(page) == []
    drain()
    expect(detail.locator(".badge").first).to_have_text("out of service")
    assert drained() == {slot.name for slot in client.slots() if slot.name.startswith(f"{card}/")}
    resume()
    detail.get_by_role("button", name=first.host, exact=True).press("Enter")
    expect(title).to_have_text(f"host {first.host}")
    expect(detail.get_by_role("button", name=card, exact=True)).to_be_visible()
    drain()
    assert drained() == {slot.name for slot in client.slots() if slot.host == first.host}
    assert serious_findings(page) == []
    resume()


def test_a_gang_is_seen_on_its_processors_and_cancelled(pool, dashboard):
    page = dashboard.page
    wanted = {"name": HOSTILE, "processes": 2, "runtime_s": 600.0, "cpu_usage": 1.0}
    created = requests.post(f"{pool.endpoint}/v1/gangs", json=wanted, timeout=60)
    created.raise_for_status()
    dashboard.open("tiers")
    processes = page.locator(".tier.foreground").filter(has_text=HOSTILE)
    expect(processes).to_have_count(2)
    processes.first.click()
    expect(page.locator("#detail dt").filter(has_text="pCPU time in foreground")).to_be_visible()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the gang").click()
    expect(processes).to_have_count(0)
    expect(page.locator("#detail .badge").first).to_have_text("cancelled")
    expect(page.get_by_role("button", name="ground: free")).to_have_count(4)
    assert pool.client.gang(created.json()["gang"]["uuid"]).gang.state is GangState.CANCELLED


@pytest.mark.long
def test_the_rate_of_an_input_is_measured_beside_the_planned_one(browser, tmp_path):
    """At 5 Mbit/s the input takes 224 s, so even a busy machine sees the transfer, and heartbeats report its rate."""
    options = POOL | {"standalone": POOL["standalone"] | {"egress_mbps": 5}}
    slow = JobSpec("wordcount", b"a word " * 20_000_000, requester="requester-1", name="slow")
    with embedded_pool(tmp_path, options) as endpoint, Client(endpoint) as client:
        batch = client.create([slow])
        sender = threading.Thread(target=client.attach, args=(batch.uuid, [slow]), daemon=True)
        sender.start()
        with watched_page(browser, endpoint) as dashboard:
            dashboard.open("egress")
            flows = dashboard.page.get_by_role("region", name="Flows")
            cells = flows.get_by_role("row").filter(has_text="slow").get_by_role("cell")
            expect(cells.nth(4)).to_have_text("5.00 Mbit/s")
            expect(cells.nth(5)).to_have_text(re.compile(r"^[\d.]+ [kM]bit/s$"))
            caption = dashboard.page.locator("figure figcaption")
            expect(caption).to_have_text(
                re.compile(r"^requester-1: 5.00 Mbit/s of 5.00 Mbit/s, measured [\d.]+ [kM]bit/s$")
            )
        (flow,) = client.flows()
        assert (flow.name, flow.planned_bps, flow.requester) == ("slow", 5e6, "requester-1")
        client.cancel(batch.uuid)
        sender.join(SOON_S)
        assert not sender.is_alive()


@pytest.mark.long
def test_the_schedule_shows_since_when_each_input_was_really_sent(browser, tmp_path):
    """Two inputs take 1 s each at 8 Mbit/s; the third is so small that it is sent at once."""
    options = POOL | {"standalone": POOL["standalone"] | {"egress_mbps": 8}}
    sizes = {"left": 1_000_000, "right": 1_000_000, "small": 1000}
    specs = [JobSpec("wordcount", bytes(size), requester="requester-1", name=name) for name, size in sizes.items()]
    with embedded_pool(tmp_path, options) as endpoint, Client(endpoint) as client:
        uuid = client.run_jobs(specs).batch.uuid
        jobs = {job.name: job for job in client.jobs(uuid)}
        assert jobs["small"].transfer_began_at is None
        with watched_page(browser, endpoint) as dashboard:
            dashboard.open("schedule")
            mark = {name: dashboard.page.locator(".gantt").get_by_role("button", name=f"{name}: ") for name in sizes}
            expect(mark["small"].locator(".arrival")).to_have_count(1)
            expect(mark["small"].locator(".moved")).to_have_count(0)
            expect(mark["small"]).to_have_accessible_name(re.compile(", input complete at "))
            for name in ("left", "right"):
                job = jobs[name]
                assert job.dispatched_at < job.transfer_began_at < job.staged_at
                sent = re.compile(r", input transferred ([\d.]+) s to ([\d.]+) s")
                expect(mark[name]).to_have_accessible_name(sent)
                shown = sent.search(mark[name].get_attribute("aria-label"))
                # Hundredths or, from 10 s on, tenths of a second; JavaScript's times have no fractions of milliseconds.
                happened = [at - job.dispatched_at for at in (job.transfer_began_at, job.staged_at)]
                assert [float(text) for text in shown.groups()] == pytest.approx(happened, abs=0.06)
                moved, arrival, transfer = dashboard.page.evaluate(BOXES_OF_JOB, name)
                assert moved["x"] + moved["width"] == pytest.approx(arrival["x"], abs=1)
                assert moved["x"] >= transfer["x"] - 1


def test_the_project_can_be_chosen_where_nobody_authenticates(pool, dashboard):
    page = dashboard.page
    pool.end_batch()
    dashboard.open("queue")
    expect(page.get_by_role("row").filter(has_text=HOSTILE).first).to_be_visible()
    page.get_by_role("button", name="Project").click()
    page.get_by_role("textbox", name="Project").fill("another")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No work yet")).to_be_visible()
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_axe_finds_nothing_serious(browser, pool, scheme):
    pool.end_batch()
    found = []
    with watched_page(browser, pool.endpoint, scheme=scheme) as dashboard:
        dashboard.open("pool")
        dashboard.page.locator(".slot").first.click()
        expect(dashboard.page.locator("#detail h3").first).to_be_visible()
        for view in VIEWS:
            dashboard.go(view)
            found += [(view, *finding) for finding in serious_findings(dashboard.page)]
    assert found == []
