"""One page of HTML with the figures of several papers: pictures, values with their intervals, claims, animations.

The page is self-contained and sends no requests to other hosts.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fpga_pool.conf.policies import policy_as
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.experiments.animation import BEHIND, FRONT, animated_tasks, animated_tiers
from fpga_pool.sim.gangs.simulator import simulate
from fpga_pool.sim.gangs.trace import Sink, Trace, draw
from fpga_pool.sim.scenario.recording import Span

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:0 auto;padding:1rem}
table{border-collapse:collapse;font-size:.85rem;margin:.5rem 0}
th,td{border:1px solid #8888;padding:.2rem .5rem;text-align:left;vertical-align:top}
td.number{text-align:right;font-variant-numeric:tabular-nums}
img,svg{display:block;max-width:100%;height:auto;background:#fff;border-radius:4px}
.wide{overflow-x:auto}
nav a{margin-right:1rem}
"""
#: If the browser is set to reduced motion, animations are paused until the button is pressed.
_SCRIPT = """
for (const button of document.querySelectorAll("button.play")) {
  const svg = button.nextElementSibling;
  const show = () => { button.textContent = svg.animationsPaused() ? "Play" : "Pause"; };
  button.addEventListener("click", () => {
    if (svg.animationsPaused()) svg.unpauseAnimations(); else svg.pauseAnimations();
    show();
  });
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) { svg.setCurrentTime(12); svg.pauseAnimations(); }
  show();
}
"""


def write_report(papers: Sequence[Mapping[str, Any]], titles: Mapping[str, str], path: Path) -> None:
    """Write the results of `command.run` for some papers, with the pictures that they name, as one page."""
    names = [paper["paper"] for paper in papers]
    links = "".join(f'<a href="#{name}">{name}</a>' for name in names)
    sections = "\n".join(_paper(paper, titles[paper["paper"]]) for paper in papers)
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Figures of the papers</title>'
        f"<style>{_STYLE}</style></head><body><main><h1>Figures of the papers, and ours</h1>\n"
        "<p>Curves are means of the seeds, bands and bars their 95 % confidence intervals (Student's t). Hatched: what "
        f"the text of a paper says of its own curve.</p>\n<nav>{links}</nav>\n{sections}</main>\n"
        f"<script>{_SCRIPT}</script></body></html>\n",
        encoding="utf-8",
    )


def _paper(paper: Mapping[str, Any], title: str) -> str:
    known = paper["provenance"]
    seeds = ", ".join(map(str, known["seeds"]))
    points = "all places" if known["points"] is None else f"at most {known['points']} places on each axis"
    made = f"{known['command']}; seeds {seeds}; {points}; scale {known['scale']:g}; {known['took_s']:g} s on "
    made += f"{known['machine']}, Python {known['python']}, fpga_pool {known['version']}"
    parts = [f'<section id="{paper["paper"]}"><h2>{escape(title[0].upper() + title[1:])}</h2><p>{escape(made)}</p>']
    if paper["paper"] in ANIMATIONS:
        parts.append(f'<button type="button" class="play">Pause</button>\n{ANIMATIONS[paper["paper"]]()}')
    return "\n".join([*parts, *map(_figure, paper["figures"]), "</section>"])


def _figure(figure: Mapping[str, Any]) -> str:
    title = f"Figure {figure['figure']}: {figure['title']}"
    parts = [f"<h3>{escape(title)} ({escape(figure['where'])})</h3>"]
    picture = next((Path(file) for file in figure["files"] if file.endswith(".svg")), None)
    if picture is not None:
        data = base64.b64encode(picture.read_bytes()).decode("ascii")
        parts.append(f'<img alt="{escape(title)}; the values are below" src="data:image/svg+xml;base64,{data}">')
    if figure["claims"]:
        rows = [
            [claim["text"], claim["where"], claim["paper"], _ours(claim), claim["why"]] for claim in figure["claims"]
        ]
        parts.append(_table(["the paper", "where", "paper's", "ours", "differences and reasons"], rows))
    values = "".join(_values(panel, figure["curves"]) for panel in dict.fromkeys(c["panel"] for c in figure["curves"]))
    return "\n".join([*parts, f"<details><summary>Values</summary>{values}</details>"])


def _ours(claim: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {value:.4g} {claim['unit']}".rstrip() for name, value in claim["ours"].items())


def _values(panel: str, curves: Sequence[Mapping[str, Any]]) -> str:
    of_panel = [curve for curve in curves if curve["panel"] == panel]
    places = list(dict.fromkeys(x for curve in of_panel for x in curve["x"]))
    rows = [[x if isinstance(x, str) else f"{x:g}", *(_value(curve, x) for curve in of_panel)] for x in places]
    return f"<h4>{escape(panel)}</h4>" + _table(["x", *(curve["series"] for curve in of_panel)], rows, "number")


def _value(curve: Mapping[str, Any], x: object) -> str:
    if x not in curve["x"]:
        return ""
    at = curve["x"].index(x)
    reach = curve["half_width"][at]
    return f"{curve['mean'][at]:.4g}" + ("" if reach is None or math.isnan(reach) else f" ± {reach:.2g}")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], style: str = "text") -> str:
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f'<td class="{style}">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="wide" tabindex="0"><table><tr>{titles}</tr>{body}</table></div>'


# ---- Animations: small examples, the same each time

_TASKS, _RINGS, _FPGAS, _EFFORT = 36, 3, 8, 200
_GANGS, _PROCESSORS = 26, 16


def rings() -> str:
    """Return an animation of tasks on three rings, scheduled by our policy."""
    rng = np.random.default_rng(1)
    problem = TaskProblem(
        enclosure_fpgas=np.full(_RINGS, _FPGAS),
        enclosure_links=np.full(_RINGS, Topology.RING),
        shape_begin=np.arange(_TASKS + 1),
        shape_fpgas=rng.choice([1, 2, 3, 4, 6, 8], _TASKS),
        shape_seconds=rng.exponential(10.0, _TASKS),
        links=np.full(_TASKS, Links.LINE),
    )
    policy = policy_as("task", "lattice_plus").searching(_EFFORT, None, lambda: 0.0)
    schedule = policy.decide(problem, None, 0.0, rng)
    title = f"{_TASKS} tasks of up to {_FPGAS} linked FPGAs on {_RINGS} rings, by lattice_plus"
    return animated_tasks(problem, schedule, [str(task) for task in range(_TASKS)], title)


class _Spans(Sink):
    """Collects the activity of the tiers."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def stretch(self, gang: int, begin_s: float, end_s: float, tier: str, processors: Any, rate: float) -> None:
        """Store a stretch as one span per processor."""
        name = {"fg": FRONT, "bg": BEHIND}.get(tier)
        if name is not None and end_s > begin_s:
            self.spans += [Span(f"{one} {name}", begin_s, end_s, "process", str(gang)) for one in processors.tolist()]


def tiers() -> str:
    """Return an animation of gangs on the tiers of 16 processors, scheduled by our policy."""
    rng = np.random.default_rng(1)
    run_s = rng.exponential(120.0, _GANGS) + 20.0
    trace = Trace(
        job=np.arange(_GANGS),
        submit_s=np.sort(rng.uniform(0.0, 500.0, _GANGS)),
        run_s=run_s,
        estimate_s=1.5 * run_s,
        width=rng.choice([1, 2, 4, 8, 12], _GANGS),
        user=np.full(_GANGS, -1),
    )
    params = ProgressParams()
    gangs, shares = draw(trace, params, rng)
    kept = _Spans()
    policy = policy_as("gang", "measy_plus")
    outcome = simulate(_PROCESSORS, trace, gangs, shares, policy, params=params, migration_s=5.0, sink=kept)
    title = f"{_GANGS} gangs on the foreground and background of {_PROCESSORS} processors, by measy_plus"
    return animated_tiers(kept.spans, [str(one) for one in range(_PROCESSORS)], float(outcome.finish_s.max()), title)


ANIMATIONS = {"lattice": rings, "gangs": tiers}
