"""The dashboard's drawings of a fixed pool, for comparison in a test: python -m support.drawings DIRECTORY

Pixels would differ with the fonts of each machine.  Compared are properties that do not depend on fonts: the positions
of the marks of all charts, the set of marks, and their colours.  The command stores these properties (DRAWINGS), and a
picture of each view in the directory for visual inspection.
"""

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from support.answers import FixedPool, served_answers
from support.browser import running_browser, watched_page

DRAWINGS = Path(__file__).parents[1] / "functional" / "dashboard_drawings.json"
#: The selector that each view shows when it is complete, and the number of its elements.
VIEWS = {
    "pool": (".slot", 16),
    "queue": ("tbody tr", 6),
    "schedule": (".gantt .job", 8),
    "egress": (".flow", 8),
    "tiers": (".tier.foreground:not(.hue-none)", 2),
    "usage": (".part", 9),
}
SCHEMES, WIDTHS, HEIGHT = ("light", "dark"), (1440, 700, 390), 900
LOOK_MS = 100

_READ = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const colour = (text) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = text;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const kind = (mark) => {
        const around = mark.closest(".job, .mark, .slot, .swatch, .part, .tier") ?? mark;
        const state = mark.dataset.state ?? around.dataset.state ?? "";
        return [mark.tagName.toLowerCase(), mark.getAttribute("class"), around.getAttribute("class"), state].join("|");
    };
    const places = [...document.querySelectorAll("main svg :is(rect, line, path)")].map((mark) => {
        const { x, y, width, height } = mark.getBBox();
        return [kind(mark), Math.round(x), Math.round(y), Math.round(width), Math.round(height)];
    });
    // Elements of HTML: within the frame that holds them, for what is above it has the heights of texts.
    for (const mark of document.querySelectorAll("main :is(.slot, .part, .tier)")) {
        const frame = mark.closest(".cards, .stack, .processors").getBoundingClientRect();
        const { x, y, width, height } = mark.getBoundingClientRect();
        places.push([kind(mark), ...[x - frame.x, y - frame.y, width, height].map(Math.round)]);
    }
    const colours = {};
    const marked = "main :is(.slot, .swatch, .part, .tier, .badge, svg rect, svg line, svg path)";
    for (const mark of document.querySelectorAll(marked)) {
        const style = getComputedStyle(mark);
        const isDrawn = mark instanceof SVGElement;
        const both = isDrawn ? [style.fill, style.stroke] : [style.backgroundColor, style.borderLeftColor];
        colours[kind(mark)] = both.map((one) => (one === "none" || one.startsWith("url") ? null : colour(one)));
    }
    const marks = [...document.querySelectorAll("main :is(.slot, .part, .tier)")].map((mark) => mark.ariaLabel);
    const isTooWide = document.scrollingElement.scrollWidth > innerWidth;
    return { places, colours, marks, isTooWide };
}"""


def drawings(browser: Browser, pictures: Path) -> dict[str, Any]:
    """Return marks and positions by view and width, and colours by view and scheme; write pictures to a directory."""
    pool, asked = FixedPool(hosts=1, running=4), Counter[str]()
    pool.turn(1)

    def answer(path: str) -> bytes | None:
        asked[path] += 1
        return pool.answer(path)

    found: dict[str, Any] = {}
    with served_answers(answer) as endpoint:
        for scheme, width in product(SCHEMES, WIDTHS):
            asked.clear()
            with watched_page(browser, endpoint, scheme=scheme) as watched:
                page = watched.page
                page.set_viewport_size({"width": width, "height": HEIGHT})
                page.clock.set_fixed_time(datetime.fromtimestamp(pool.now_s(), UTC))
                watched.open("pool")
                # A list is polled again only after its answer has been processed; the hosts are polled least often.
                while not (asked["/v1/slots"] > 1 and asked["/v1/hosts"] > 1 and asked["/v1/batches?limit=100"] > 1):
                    page.wait_for_timeout(LOOK_MS)
                for view, (part, count) in VIEWS.items():
                    watched.open(view)
                    expect(page.locator(part)).to_have_count(count)
                    seen = page.evaluate(_READ)
                    page.screenshot(path=pictures / f"{view}-{scheme}-{width}.png", full_page=True)
                    found[f"{view} {scheme}"] = seen["colours"]
                    found[f"{view} {width}"] = {name: seen[name] for name in ("places", "marks", "isTooWide")}
    return found


if __name__ == "__main__":
    (target,) = map(Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    with running_browser() as started:
        lines = [f'"{name}": {json.dumps(one)}' for name, one in drawings(started, target).items()]
    DRAWINGS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
