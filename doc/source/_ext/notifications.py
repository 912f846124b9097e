"""Directive ``.. notifications::``: all kinds of notifications, and a sample of each.

The table is made from ``fpga_pool.model.lifecycle.notifications``, the samples are files that a test compares with it.
"""

from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fpga_pool.model.lifecycle.notifications import KINDS

SAMPLES = Path(__file__).parents[2] / "notification_samples"


def lines() -> list[str]:
    """Return the table and the samples as reStructuredText."""
    table = [".. list-table::", "   :header-rows: 1", "   :widths: 20 10 10 60", ""]
    rows = [("Event type", "Version", "Priority", "Meaning")]
    rows += [(f"``{kind.event_type}``", kind.version, kind.priority, kind.help) for kind in KINDS]
    table += [f"   {'*' if place == 0 else ' '} - {cell}" for row in rows for place, cell in enumerate(row)]
    for kind in KINDS:
        sample = (SAMPLES / f"{kind.event_type.replace('.', '-')}.json").read_text().splitlines()
        table += ["", ".. code-block:: json", f"   :caption: {kind.event_type}", "", *(f"   {one}" for one in sample)]
    return table


class Notifications(SphinxDirective):
    """All kinds of notifications."""

    def run(self) -> list[nodes.Node]:
        inside = nodes.container()
        self.state.nested_parse(StringList(lines(), source="notifications"), self.content_offset, inside)
        return [inside]


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known."""
    app.add_directive("notifications", Notifications)
    return {"parallel_read_safe": True}
