"""Directives ``.. metrics::`` and ``.. alerts::``: the metrics that processes export, and the alerts shipped for them.

The tables are made from ``fpga_pool.metrics.table`` and from the file of alerts, so the page cannot differ from them.
"""

from collections.abc import Iterable
from pathlib import Path

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fpga_pool.metrics.table import LABELS, METRICS, Exporter

ALERTS = Path(__file__).parents[3] / "etc" / "fpga_pool" / "prometheus-alerts.yaml"

Rows = list[tuple[str, ...]]


def metrics_of(exporter: Exporter) -> Rows:
    """Return a row for each metric: name, kind, labels, meaning."""
    return [
        (f"``{one.name}``", one.kind.value, ", ".join(f"``{label}``" for label in one.labels), one.help)
        for one in METRICS
        if one.exporter is exporter
    ]


def labels() -> Rows:
    """Return a row for each label: name, values, limit."""
    return [(f"``{name}``", label.meaning, str(label.limit)) for name, label in sorted(LABELS.items())]


def alerts() -> Rows:
    """Return a row for each alert: name, severity, expression, action."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return [
        (
            f"{rule['alert']} ({rule['labels']['severity']})",
            f"``{' '.join(rule['expr'].split())}`` for {rule.get('for', '0s')}",
            rule["annotations"]["action"],
        )
        for rule in group["rules"]
    ]


class _Tables(SphinxDirective):
    def _table(self, title: str, header: tuple[str, ...], widths: str, rows: Iterable[tuple[str, ...]]) -> nodes.Node:
        lines = [f".. list-table:: {title}", "   :header-rows: 1", f"   :widths: {widths}", ""]
        for row in (header, *rows):
            lines += [f"   {'*' if place == 0 else ' '} - {cell}" for place, cell in enumerate(row)]
        inside = nodes.container()
        self.state.nested_parse(StringList(lines, source="metrics"), self.content_offset, inside)
        return inside


class Metrics(_Tables):
    """All metrics, by exporting process, and their labels."""

    def run(self) -> list[nodes.Node]:
        header = ("Metric", "Kind", "Labels", "Meaning")
        titles = {
            Exporter.SCHEDULER: "Schedulers",
            Exporter.AGENT: "Agents",
            Exporter.API: "API",
            Exporter.ALL: "All processes",
        }
        return [
            *(self._table(title, header, "34 10 16 40", metrics_of(one)) for one, title in titles.items()),
            self._table("Labels", ("Label", "Value", "At most"), "15 70 15", labels()),
        ]


class Alerts(_Tables):
    """All alerts, their conditions, and what to do."""

    def run(self) -> list[nodes.Node]:
        return [self._table("Alerts", ("Alert", "Condition", "What to do"), "22 36 42", alerts())]


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directives known."""
    app.add_directive("metrics", Metrics)
    app.add_directive("alerts", Alerts)
    return {"parallel_read_safe": True}
