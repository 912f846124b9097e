"""What the dashboard draws on its page for given responses."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from fpga_pool.model.messages.requests import SlotDetail
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import BatchState, JobState, LeaseKind, SlotState
from fpga_pool.model.values import changed
from support.answers import (
    BATCH,
    MOVED_S,
    NOW_S,
    OTHER_GANG,
    PIPELINE,
    STAGED_S,
    SUBTASKS,
    TASK,
    FixedPool,
    served_answers,
)
from support.browser import running_browser, serious_findings, watched_page
from support.drawings import DRAWINGS, SCHEMES, VIEWS, WIDTHS

HOSTS, RUNNING = 40, 20
#: Tolerance in pixels for the position of a mark, and in steps of 255 for its color.
TOLERANCE = 2
TIMEOUT_S = 240.0
#: Returns the names in the boxes at the begin and the end of each edge of a graph.
EDGES = """(graph) => {
    const boxAt = ({ x, y }) => [...graph.querySelectorAll(".job")].find((job) => {
        const box = job.querySelector("rect").getBBox();
        return x >= box.x - 1 && x <= box.x + box.width + 1 && y >= box.y - 1 && y <= box.y + box.height + 1;
    }).querySelector(".strong").textContent;
    return [...graph.querySelectorAll(".edge")].map((edge) =>
        [0, edge.getTotalLength()].map((at) => boxAt(edge.getPointAtLength(at))));
}"""


#: Returns the texts of links that are broken into several lines.
BROKEN = """(links) => links.filter((link) => {
    const range = document.createRange();
    range.selectNodeContents(link);
    return range.getClientRects().length > 1;
}).map((link) => link.textContent)"""
#: Formats a time of another day as the page does.
CLOCK = "(at) => `${new Date(at).toLocaleDateString()} ${new Date(at).toLocaleTimeString()}`"


class WaitingPipeline(FixedPool):
    """A pool whose pipeline has completed its first subtask, and placed the second."""

    def subtasks(self):
        read, left, right, join = super().subtasks()
        placed = {"state": JobState.STAGED, "slot": self.slots[0].name, "dispatched_at": NOW_S, "start_s": 60.0}
        waiting = {"state": JobState.PENDING}
        return [
            read,
            replace(left, **placed),
            replace(right, **waiting, reason="waits for read"),
            replace(join, **waiting, reason="waits for left, right"),
        ]

    def pipeline(self):
        detail = super().pipeline()
        running = replace(detail.pipeline, state=BatchState.RUNNING, jobs_completed=1)
        return replace(detail, pipeline=running, pending_reason="subtasks wait for results", expected_at=NOW_S + 60)


class LargePipeline(FixedPool):
    """A pool whose pipeline has several levels of equally many subtasks, with names that cannot be broken."""

    def __init__(self, levels, beside):
        super().__init__(HOSTS, RUNNING)
        self.uuids = [[f"{PIPELINE[:-4]}{level}{place:03}" for place in range(beside)] for level in range(levels)]

    def subtasks(self):
        one = super().subtasks()[0]
        return [
            replace(one, uuid=uuid, name=f"level{level}of{place}", predecessors=tuple(before))
            for level, (uuids, before) in enumerate(zip(self.uuids, [[], *self.uuids], strict=False))
            for place, uuid in enumerate(uuids)
        ]


class ShortPieces(FixedPool):
    """A pool whose inputs begin with a segment that is too short to be drawn."""

    def _job(self, index):
        job = super()._job(index)
        (whole,) = job.transfer
        return replace(job, transfer=(changed(whole, end_s=whole.begin_s + 1e-4), whole))


class EndingBatch(FixedPool):
    """A pool whose batch ends when a test calls `end`."""

    ended = False

    def batch(self):
        batch = super().batch()
        return replace(batch, state=BatchState.COMPLETED, ended_at=self.now_s()) if self.ended else batch

    def end(self):
        self.rounds += 1
        self.jobs = [replace(job, state=JobState.COMPLETED, finished_at=self.now_s()) for job in self.jobs]
        self.changed_in, self.ended = [self.rounds] * len(self.jobs), True


class HeldSlots(FixedPool):
    """A pool whose first slots are held by its task, the pool, an instance, and a task of another project."""

    def slot_detail(self, slot):
        holders = (
            (LeaseKind.TASK, TASK, "demo"),
            (LeaseKind.POOL, self.jobs[1].uuid, "demo"),
            (LeaseKind.INSTANCE, "an instance", "demo"),
            (LeaseKind.TASK, "an object", "another"),
        )
        place = self.slots.index(slot)
        if place >= len(holders):
            return SlotDetail(slot=slot)
        kind, holder, project = holders[place]
        return SlotDetail(slot=slot, held_by=kind, holder=holder, holder_project_id=project, leased_at=NOW_S)


@pytest.fixture(scope="module")
def browser():
    with running_browser() as browser:
        yield browser


@pytest.fixture
def pool():
    return FixedPool(HOSTS, RUNNING)


@pytest.fixture
def dashboard(browser, pool):
    with served_answers(pool.answer) as endpoint, watched_page(browser, endpoint) as watched:
        yield watched


def test_an_update_touches_the_tiles_of_slots_that_changed_and_no_other(dashboard, pool):
    page = dashboard.page
    dashboard.open("pool")
    expect(page.locator(".slot")).to_have_count(len(pool.slots))
    page.evaluate("""() => {
        window.touched = new Set();
        new MutationObserver((changes) => {
            for (const { target } of changes) touched.add(target.closest?.(".slot")?.dataset.uuid ?? target.className);
        }).observe(document.querySelector(".map"), { subtree: true, childList: true, attributes: true });
    }""")
    failed, drained = pool.slots[7].uuid, pool.slots[600].uuid
    pool.change(600, state=SlotState.DRAINED)
    pool.change(300, reconfigurations=8)  # no tile shows it
    pool.change(7, state=SlotState.FAULTED)
    expect(page.locator(f".slot[data-uuid='{failed}']")).to_have_attribute("data-state", "FAULTED")
    expect(page.locator(f".slot[data-uuid='{drained}']")).to_have_attribute("data-state", "DRAINED")
    assert set(page.evaluate("[...touched]")) == {failed, drained}


def test_hosts_come_and_go_and_the_focus_stays(dashboard, pool):
    page = dashboard.page
    dashboard.open("pool")
    expect(page.locator(".slot")).to_have_count(len(pool.slots))
    kept = page.locator(f".slot[data-uuid='{pool.slots[20].uuid}']")
    kept.focus()
    gone = pool.slots[:16]
    del pool.slots[:16], pool.texts[:16]
    expect(page.locator(".slot")).to_have_count(len(pool.slots))
    expect(page.locator(f".slot[data-uuid='{gone[0].uuid}']")).to_have_count(0)
    expect(kept).to_be_focused()
    expect(page.locator(".slot[tabindex='0']")).to_have_count(1)


def test_links_of_a_slot_lead_to_those_it_is_linked_to(dashboard, pool):
    page = dashboard.page
    del pool.slots[16:], pool.texts[16:]
    for place in range(16):
        pool.change(place, links=f"box0 line 4 {place // 4} ring 4 {place % 4}")
    dashboard.open("pool")
    expect(page.get_by_role("group", name="box0: 4 cards in a line")).to_be_visible()
    expect(page.locator(".linked-ring")).to_have_count(4)
    # For the first slot of card 1: the next and the last of its ring, and the slots of the cards before and after it.
    page.locator(f".slot[data-uuid='{pool.slots[4].uuid}']").click()
    links = page.locator("#detail section").filter(has=page.get_by_role("heading", name="Links"))
    expected = [f"node-0/card-{card}/r{region}" for card, region in [(1, 1), (1, 3)]]
    expected += [f"node-0/card-{card}/r{region}" for card in (0, 2) for region in range(4)]
    expect(links.get_by_role("button")).to_have_text(expected)
    links.get_by_role("button", name="node-0/card-2/r3").click()
    expect(page.locator("#detail h2")).to_have_text("slot node-0/card-2/r3")


def test_who_may_not_see_the_usage_of_all_projects_sees_its_own(dashboard, pool):
    page, refused = dashboard.page, []
    page.route("**/v1/usage?project_id=all&*", lambda route: (refused.append(1), route.fulfill(status=403, json={})))
    dashboard.open("usage")
    expect(page.locator("tbody tr")).to_have_count(len(pool.usage()))
    page.get_by_label("Period").select_option("last 7 days")
    with page.expect_response("**/v1/usage?start=*"):
        page.get_by_label("Period").select_option("last 31 days")
    assert len(refused) == 1
    expect(page.locator("#status")).to_have_text("Live")
    page.locator("tbody").get_by_role("button", name="aes").first.click()
    expect(page.locator("#detail h2")).to_have_text("usage of vision/aes")
    expect(page.locator("#detail tbody tr").first).to_contain_text("input-0")
    # An admin only sees that jobs of another project exist.
    expect(page.locator("#detail tbody button").filter(has_text="input-")).to_have_count(0)
    dashboard.complaints.clear()  # the console reports the refusal


def test_who_may_not_list_slots_begins_with_the_queue_and_is_shown_no_figures_of_them(dashboard, pool):
    page = dashboard.page
    page.route("**/v1/slots*", lambda route: route.fulfill(status=403, json={}))
    dashboard.open("")
    expect(page.locator("nav a[aria-current]")).to_have_text("Queue")
    expect(page.get_by_role("button", name="diamond")).to_be_visible()
    dashboard.go("Pool")
    expect(page.get_by_text("Slots are shown to operators only")).to_be_visible()
    expect(page.locator(".figures dt")).to_have_text(["Hosts alive", "Open work"])
    expect(page.get_by_role("list", name="Hosts").get_by_role("listitem")).to_have_count(len(pool.hosts))
    expect(page.locator(".legend, .map")).to_have_count(2)
    for part in page.locator(".legend, .map").all():
        expect(part).to_be_hidden()
    expect(page.locator("#status")).to_have_text("Live")
    dashboard.complaints.clear()  # the console reports the refusal


def test_a_tier_is_not_said_to_be_free_where_gangs_of_others_may_be(dashboard):
    dashboard.page.route("**/v1/processors*", lambda route: route.fulfill(status=403, json={}))
    dashboard.open("tiers")
    tiers = dashboard.page.locator(".tier")
    expect(tiers).to_have_count(4)
    for number in range(2):
        held = [f"foreground: process {number} of gang solver, running", "background: no gang of this project"]
        for tier, text in zip(tiers.all()[2 * number :], held, strict=False):
            expect(tier).to_have_accessible_name(f"node-0/pcpu/{number}, {text}")
    dashboard.complaints.clear()  # the console reports the refusal


def test_an_operator_sees_all_processors_of_gangs_also_those_that_are_free(dashboard, pool):
    dashboard.open("tiers")
    page = dashboard.page
    shown = [one for one in pool.processors() if one.offered]
    expect(page.locator(".tier")).to_have_count(2 * len(shown))
    running = "process {} of gang {}, running"
    held = {
        "node-0/pcpu/0, foreground": running.format(0, "solver"),
        "node-0/pcpu/1, foreground": running.format(1, "solver"),
        "node-0/pcpu/1, background": running.format(5, f"{OTHER_GANG[:8]}, which is not listed"),
    }
    tiers = [f"{one.name}, {tier}" for one in shown for tier in ("foreground", "background")]
    for tier, place in zip(page.locator(".tier").all(), tiers, strict=True):
        expect(tier).to_have_accessible_name(f"{place}: {held.get(place, 'free')}")
        (expect(tier).to_be_enabled if "solver" in held.get(place, "") else expect(tier).to_be_disabled)()
    assert serious_findings(page) == []


def test_usage_counts_the_slots_of_instances(dashboard, pool):
    page = dashboard.page
    dashboard.open("usage")
    total_s = sum(row.slot_s + row.cpu_s + row.instance_slot_s for row in pool.usage())
    for label, shown, used_s in (("fft", "1 h 00 min", 4190.0), ("loaded by instances", "30 min 00 s", 1800.0)):
        cells = page.get_by_role("row").filter(has_text="demo").filter(has_text=label).get_by_role("cell")
        expect(cells.nth(4)).to_have_text(shown)
        expect(cells.get_by_role("progressbar")).to_have_js_property("value", used_s / total_s)
    expect(page.get_by_role("button", name="fft of demo: 1 h 10 min")).to_be_visible()
    expect(page.get_by_role("img", name="loaded by instances of demo: 30 min 00 s")).to_be_visible()


def test_of_a_batch_that_waits_the_queue_tells_why_and_until_when(dashboard, pool):
    page = dashboard.page
    dashboard.open("queue")
    clock = page.evaluate(CLOCK, 1000 * (NOW_S + 60))
    reason_of = {name: page.get_by_role("row").filter(has_text=name).locator(".reason") for name in ("nightly", "next")}
    expect(reason_of["nightly"]).to_have_text("held by its owner")
    expect(reason_of["next"]).to_have_text(f"all slots are busy; expected {clock}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_pipeline_is_a_graph_whose_subtasks_open_by_keyboard(browser, pool, scheme):
    with served_answers(pool.answer) as endpoint, watched_page(browser, endpoint, scheme=scheme) as watched:
        page = watched.page
        watched.open("queue")
        page.get_by_role("button", name="diamond").click()
        graph = page.get_by_role("group", name="Subtasks and what they read")
        boxes = {name: graph.get_by_role("button", name=f"{name}: ") for name in SUBTASKS}
        expect(graph.get_by_role("button")).to_have_count(len(boxes))
        places = {name: box.bounding_box() for name, box in boxes.items()}
        assert places["read"]["y"] < places["left"]["y"] == places["right"]["y"] < places["join"]["y"]
        edges = [[before, name] for name, read in SUBTASKS.items() for before in read]
        assert sorted(graph.evaluate(EDGES)) == sorted(edges)
        assert serious_findings(page) == []
        boxes["right"].focus()
        page.keyboard.press("Enter")
        expect(page.locator("#detail h2")).to_have_text("job right")


@pytest.mark.parametrize(("levels", "beside"), [(12, 1), (4, 3), (3, 8)])
def test_a_large_pipeline_has_place_in_the_detail_and_its_names_are_not_broken(browser, levels, beside):
    pool = LargePipeline(levels, beside)
    with served_answers(pool.answer) as endpoint, watched_page(browser, endpoint) as watched:
        page = watched.page
        watched.open(f"queue/pipeline/{PIPELINE}")
        graph = page.get_by_role("group", name="Subtasks and what they read")
        expect(graph.get_by_role("button")).to_have_count(levels * beside)
        assert graph.evaluate("({ parentElement: place }) => place.scrollWidth === place.clientWidth")
        # Of 104 pixels as drawn, so the texts remain readable.
        assert graph.locator(".box").first.bounding_box()["width"] > 85
        assert page.locator("#detail td:first-child button").evaluate_all(BROKEN) == []


def test_names_of_a_narrow_table_are_broken_only_where_they_are_long(dashboard, pool):
    page, long = dashboard.page, "a_name_without_any_place_to_break_it"
    held, other = FixedPool.waiting(pool)
    pool.waiting = lambda: (replace(held, batch=replace(held.batch, name=long)), other)
    page.set_viewport_size({"width": 390, "height": 900})
    dashboard.open("queue")
    names = page.locator("th button")
    expect(names).to_have_text(["wide", "solver", long, "next", "diamond", "lattice"])
    assert names.evaluate_all(BROKEN) == [long]


@pytest.mark.parametrize(
    ("elapsed_s", "said", "field_said"), [(4.0, "expected {}", "{}"), (63.0, "late since {}", "{}, late")]
)
def test_a_pipeline_and_its_subtasks_tell_why_they_wait_and_until_when(browser, elapsed_s, said, field_said):
    pool = WaitingPipeline(HOSTS, RUNNING)
    pool.elapsed_s = elapsed_s
    with served_answers(pool.answer) as endpoint, watched_page(browser, endpoint) as watched:
        page = watched.page
        watched.open("queue")
        clock = page.evaluate(CLOCK, 1000 * (NOW_S + 60))
        row = page.get_by_role("row").filter(has_text="diamond")
        expect(row.locator(".reason")).to_have_text(f"subtasks wait for results; {said.format(clock)}")
        row.get_by_role("button").click()
        detail = page.get_by_role("complementary", name="Detail")
        for label, text in (("pending reason", "subtasks wait for results"), ("expected", field_said.format(clock))):
            field = detail.locator("dt").filter(has_text=re.compile(f"^{label}$"))
            expect(field.locator("xpath=following-sibling::dd[1]")).to_have_text(text)
        assert detail.evaluate("(panel) => panel.scrollWidth === panel.clientWidth")
        reasons = detail.get_by_role("table").locator(".note")
        expect(reasons).to_have_text(["", said.format(clock), "waits for read", "waits for left, right"])


def test_a_task_leads_to_its_slots_and_shares(dashboard, pool):
    page = dashboard.page
    dashboard.open("queue")
    row = page.get_by_role("row").filter(has_text="lattice")
    expect(row.locator(".progress")).to_have_text("2 slots, 0 of 2 shares")
    row.get_by_role("button").click()
    detail = page.get_by_role("complementary", name="Detail")
    detail.get_by_role("button", name="job 1").click()
    expect(detail.get_by_role("heading", level=2)).to_have_text("job job 1")
    detail.get_by_role("button", name=pool.slots[1].name).click()
    expect(detail.get_by_role("heading", level=2)).to_have_text(f"slot {pool.slots[1].name}")


def test_the_schedule_of_a_task_shows_its_shares_on_their_slots(dashboard, pool):
    page, shares = dashboard.page, pool.task().share_list
    dashboard.open("queue")
    page.get_by_role("button", name="lattice").click()
    page.locator("#detail").get_by_role("button", name="Show schedule").click()
    for index, share in enumerate(shares):
        row = page.locator(".gantt").get_by_role("group", name=share.slot)
        job = row.get_by_role("button", name=f"job {index}: ")
        expect(job).to_have_accessible_name(f"job {index}: fft on {share.slot}, running, planned 1.00 s to 6.00 s")
        expect(job.locator(".plan, .actual")).to_have_count(2)
    expect(page.get_by_role("combobox")).to_have_value(TASK)
    expect(page.get_by_text(re.compile("^task · running · 0 of 2 shares completed"))).to_be_visible()
    for text in ("wide · running · 40 jobs", "diamond · completed · 4 subtasks", "lattice · running · 2 shares"):
        expect(page.get_by_role("option", name=text, exact=True)).to_have_count(1)
    page.get_by_role("combobox").select_option(BATCH)
    expect(page.locator(".gantt .job")).to_have_count(len(pool.jobs))


def test_loads_and_slots_of_the_schedule_open_the_slot(dashboard, pool):
    """A slot shows the function of its last load; that of the load before is known by the job that began in between."""
    page, slot = dashboard.page, pool.slots[0]
    job = pool.jobs[0]
    assert (job.slot, job.function, job.started_at) == (slot.name, "aes", NOW_S + 1.2)
    events = (
        (0.5, "READY", "LOADING"),
        (1.0, "LOADING", "READY"),
        (2.0, "READY", "LOADING"),
        (2.25, "LOADING", "READY"),
    )
    history = [
        HistoryEntry(NOW_S + at, "SlotChanged", before, after, number)
        for number, (at, before, after) in enumerate(events)
    ]
    pool.change(0, function="wordcount", history=tuple(history))
    dashboard.open("schedule")
    load = page.get_by_role("button", name=f"load of aes into {slot.name}, 0.50 s")
    load.focus()
    drawn = page.locator(".gantt").element_handle()
    page.wait_for_function("(svg) => !svg.isConnected", arg=drawn)
    expect(load).to_be_focused()
    page.keyboard.press("Enter")
    title = page.locator("#detail h2")
    expect(title).to_have_text(f"slot {slot.name}")
    expect(page.get_by_role("button", name=f"load of wordcount into {slot.name}, 0.25 s")).to_be_attached()
    page.locator(".gantt").get_by_role("button", name=pool.jobs[1].slot, exact=True).click()
    expect(title).to_have_text(f"slot {pool.jobs[1].slot}")


@pytest.mark.parametrize(
    ("view", "picture", "drawn_last"),
    [
        ("pool", ".map", ".slot"),
        ("schedule", ".chart", ".slot-name.opener"),  # when slots are also known
        ("egress", ".charts", "[role=button]"),
    ],
)
def test_a_picture_is_one_tab_stop_and_arrows_go_from_mark_to_mark(dashboard, view, picture, drawn_last):
    page = dashboard.page
    dashboard.open(view)
    page.locator(f"{picture} {drawn_last}").first.wait_for(state="attached")
    marks = page.locator(f"{picture} :is(.slot, [role=button])")
    stops = page.locator(f"{picture} [tabindex='0'], {picture}[tabindex='0']")
    expect(stops).to_have_count(1)
    first, last = marks.first, marks.last
    first.focus()
    for key, mark in (("ArrowRight", marks.nth(1)), ("ArrowLeft", first), ("End", last), ("ArrowRight", last)):
        page.keyboard.press(key)
        expect(mark).to_be_focused()
    expect(stops).to_have_count(1)
    page.keyboard.press("Tab")
    assert page.evaluate("(picture) => document.activeElement.closest(picture)", picture) is None
    page.keyboard.press("Shift+Tab")
    expect(last).to_be_focused()
    page.keyboard.press("Home")
    expect(first).to_be_focused()


def test_arrows_up_and_down_lead_to_the_nearest_job_of_another_slot_or_requester(dashboard, pool):
    page, jobs = dashboard.page, pool.jobs
    dashboard.open("schedule")
    # Each row has a running or a planned job; those of the first jobs begin at the same time.
    names = sorted({job.slot for job in jobs}, key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)])
    rows = [next(job for job in jobs if job.slot == name) for name in names[:3:2]]
    assert [job.start_s for job in rows] == [1.0, 1.0]
    page.locator(f".gantt [data-key='{rows[0].uuid}']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(f".gantt [data-key='{rows[1].uuid}']")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator(f".gantt [data-key='{rows[0].uuid}']")).to_be_focused()
    dashboard.go("Egress")
    page.locator(".charts [role=button]").first.focus()
    page.keyboard.press("ArrowDown")
    second = page.locator(".charts figure").nth(1)
    assert second.evaluate("(figure) => figure.contains(document.activeElement)")


def test_marks_of_pictures_tell_in_words_what_they_show(dashboard, pool):
    page, late = dashboard.page, pool.jobs[0]
    pool.jobs[0] = replace(late, state=JobState.COMPLETED, finished_at=NOW_S + late.end_s + 1, compute_s=7.0)
    dashboard.open("schedule")
    for line in ("lower bound: 11.0 s", "planned end: 12.0 s"):
        expect(page.get_by_role("img", name=line)).to_be_visible()
    job = page.locator(".gantt").get_by_role("button", name=f"{late.name}: ")
    # Jobs begin 1.2 s after time 0, and their inputs are complete before that.
    staged_s = 1.2 - STAGED_S
    told = f", input transferred {staged_s - MOVED_S:.2f} s to {staged_s:.2f} s, computed 7.00 s, later than planned"
    expect(job).to_have_accessible_name(re.compile(f"on {late.slot}, completed, .*{re.escape(told)}$"))
    expect(job.locator(".moved, .arrival")).to_have_count(2)
    for key in ("planned transfer", "actual transfer", "input complete"):
        expect(page.get_by_text(key, exact=True)).to_be_visible()
    row = page.locator(".gantt").get_by_role("group", name=late.slot)
    expect(row.get_by_role("button", name=f"{late.name}: ")).to_have_count(1)
    dashboard.go("Egress")
    sent = page.locator(".charts").get_by_role("button", name=f"{pool.jobs[1].name}: ")
    expect(sent).to_have_accessible_name(re.compile("at most 40.0 Mbit/s, 0.00 s to 1.00 s$"))
    dashboard.go("Queue")
    page.get_by_role("button", name="diamond").click()
    expect(page.get_by_role("button", name="join: ")).to_have_accessible_name(re.compile(", reads left, right$"))


def test_an_input_whose_transfer_is_not_known_has_no_bar_but_a_tick(dashboard, pool):
    page, small = dashboard.page, replace(pool.jobs[0], transfer_began_at=None)
    pool.jobs[0] = small
    dashboard.open("schedule")
    job = page.locator(".gantt").get_by_role("button", name=f"{small.name}: ")
    expect(job.locator(".arrival")).to_have_count(1)
    expect(job.locator(".moved")).to_have_count(0)
    expect(job).to_have_accessible_name(re.compile(f", input complete at {1.2 - STAGED_S:.2f} s$"))


def test_the_egress_of_a_job_ends_with_its_transfer_however_short_the_pieces_of_that_are(browser):
    pool = ShortPieces(HOSTS, RUNNING)
    with served_answers(pool.answer) as endpoint, watched_page(browser, endpoint) as dashboard:
        dashboard.open("egress")
        sent = dashboard.page.locator(".charts").get_by_role("button", name=f"{pool.jobs[1].name}: ")
        expect(sent).to_have_accessible_name(re.compile("at most 40.0 Mbit/s, 0.00 s to 1.00 s$"))


def test_no_job_of_a_batch_that_has_ended_is_said_to_run_though_another_batch_is_shown(browser):
    pool = EndingBatch(HOSTS, RUNNING)
    with served_answers(pool.answer) as endpoint, watched_page(browser, endpoint) as dashboard:
        dashboard.open("queue")
        progress = dashboard.page.get_by_role("row").filter(has_text="wide").locator(".progress .note")
        expect(progress).to_have_text(f"0 of 40 jobs, {RUNNING} running")
        pool.end()
        expect(progress).to_have_text("40 of 40 jobs")


def test_names_of_hosts_open_them(dashboard, pool):
    page, title = dashboard.page, dashboard.page.locator("#detail h2")
    dashboard.open("tiers")
    page.get_by_role("region", name="Host node-0").get_by_role("button", name="node-0", exact=True).click()
    expect(title).to_have_text("host node-0")
    dashboard.go("Egress")
    job = next(job for job in pool.jobs if job.state is JobState.WAITING_INPUT)
    row = page.get_by_role("region", name="Flows").get_by_role("row").filter(has=page.get_by_text(job.name, exact=True))
    for host in (job.requester, job.host):
        row.get_by_role("button", name=host, exact=True).click()
        expect(title).to_have_text(f"host {host}")


def test_the_job_of_a_slot_opens_though_its_batch_is_not_followed(dashboard, pool):
    page, job = dashboard.page, pool.subtasks()[1]  # of a pipeline that has ended
    pool.change(9, state=SlotState.BUSY, job=job.uuid)
    dashboard.open("pool")
    page.locator(f".slot[data-uuid='{pool.slots[9].uuid}']").click()
    page.locator(f"#detail button[data-opens='job/.{job.uuid}']").first.click()
    expect(page.locator("#detail h2")).to_have_text("job left")
    expect(page.locator("#detail").get_by_text(job.uuid)).to_be_visible()


def test_a_slot_leads_to_the_task_or_job_that_holds_it_in_the_own_project_and_names_others(browser):
    pool = HeldSlots(HOSTS, RUNNING)
    with served_answers(pool.answer) as endpoint, watched_page(browser, endpoint) as watched:
        page, detail = watched.page, watched.page.locator("#detail")
        watched.open("pool")
        places = {name: place for place, name in enumerate(("task", "pool", "instance", "another", "nothing"))}
        holder = detail.locator("dt").filter(has_text=re.compile("^holder$")).locator("xpath=following-sibling::dd[1]")

        def show(name):
            page.locator(f".slot[data-uuid='{pool.slots[places[name]].uuid}']").click()

        for name, text in (("instance", "an instance"), ("another", "an object")):
            show(name)
            expect(holder).to_have_text(text)
            expect(holder.get_by_role("button")).to_have_count(0)
        show("nothing")
        expect(detail.locator("h2")).to_contain_text(pool.slots[places["nothing"]].name)
        expect(detail.get_by_text("held by")).to_have_count(0)
        for name, title in (("task", "task lattice"), ("pool", f"job {pool.jobs[1].name}")):
            show(name)
            expect(detail.locator("dl")).to_contain_text(f"held by{name}")
            holder.get_by_role("button").click()
            expect(detail.locator("h2")).to_have_text(title)


def test_a_detail_changes_only_where_its_object_has(dashboard, pool):
    page, slot = dashboard.page, pool.slots[1]
    dashboard.open(f"pool/slot/{slot.uuid}")
    fields = page.locator("#detail dl")
    expect(fields).to_contain_text("reconfigurations3")
    expect(page.locator("#detail").get_by_role("button", name="node-0/card-0/r0")).to_be_visible()  # with all slots
    page.evaluate("""() => {
        getSelection().selectAllChildren(document.querySelector("#detail dd"));
        window.touched = [];
        new MutationObserver((changes) => touched.push(...changes.map(({ target }) => target.textContent)))
            .observe(document.querySelector("#detail"), { subtree: true, childList: true, characterData: true });
    }""")
    for _ in range(3):
        page.wait_for_event("requestfinished", lambda request: request.url.endswith(slot.uuid))
    pool.change(1, reconfigurations=4)
    expect(fields).to_contain_text("reconfigurations4")
    assert page.evaluate("touched") == ["4"]
    assert page.evaluate("getSelection().toString()") == slot.name.split("/")[0]


def test_a_link_of_a_detail_leads_to_what_it_has_come_to_name(dashboard, pool):
    """Jobs of two batches may have the same name."""
    page, jobs = dashboard.page, pool.jobs
    jobs[1] = replace(jobs[1], name=jobs[0].name)
    dashboard.open(f"schedule/slot/{pool.slots[0].uuid}")
    link = page.locator("#detail dl").get_by_role("button", name=jobs[0].name)
    expect(link).to_have_attribute("data-opens", f"job/{jobs[0].batch_uuid}.{jobs[0].uuid}")
    pool.change(0, job=jobs[1].uuid)
    expect(link).to_have_attribute("data-opens", f"job/{jobs[1].batch_uuid}.{jobs[1].uuid}")
    link.click()
    expect(page.locator("#detail dl")).to_contain_text(jobs[1].uuid)


def test_escape_closes_the_detail_wherever_the_focus_is_but_a_dialog_first(dashboard, pool):
    page, detail = dashboard.page, dashboard.page.locator("#detail")
    dashboard.open("pool")
    tile = page.locator(f".slot[data-uuid='{pool.slots[1].uuid}']")
    tile.click()
    detail.get_by_role("button", name="Drain").click()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_be_hidden()
    expect(detail).to_be_visible()
    elsewhere = page.get_by_role("link", name="Usage")
    elsewhere.focus()
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()
    expect(elsewhere).to_be_focused()
    tile.click()
    expect(detail.locator("h2")).to_be_focused()
    page.keyboard.press("Escape")
    expect(tile).to_be_focused()


@pytest.mark.long
def test_views_are_drawn_as_they_were(tmp_path):
    """The command that stores new drawings, and pictures for inspection, runs in a copy of the tests."""
    tests, pictures = tmp_path / "tests", tmp_path / "drawings"
    shutil.copytree(DRAWINGS.parents[1] / "support", tests / "support")
    (tests / "functional").mkdir()
    command = [sys.executable, "-m", "support.drawings", pictures]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(tests)}, check=True, timeout=TIMEOUT_S)
    found, stored = (json.loads(path.read_text()) for path in (tests / "functional" / DRAWINGS.name, DRAWINGS))
    assert found.keys() == stored.keys()
    assert [view for view, (_, count) in VIEWS.items() if len(stored[f"{view} {WIDTHS[0]}"]["places"]) < count] == []
    assert [name for name in stored if not alike(found[name], stored[name])] == []
    assert [name for name, view in stored.items() if view.get("isTooWide")] == []
    assert len(list(pictures.glob("*.png"))) == len(VIEWS) * len(SCHEMES) * len(WIDTHS)


def alike(one, other):
    """Return whether two drawings have the same words and approximately the same numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if type(one) is int and type(other) is int:
        return abs(one - other) <= TOLERANCE
    return one == other
