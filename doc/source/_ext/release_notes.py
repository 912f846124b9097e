"""Directive ``.. unreleased-notes::``: the notes in releasenotes/changes, as reno formats them.

reno's own directive asks the history of the repository which version each note belongs to, which a shallow clone does
not have, and in which it stumbles over notes that two sides of a merge have changed.
"""

from pathlib import Path

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from reno import config, formatter, loader
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[3]
#: reno shows its title in place of a version with a hyphen.
_VERSION = "un-released"


class Files(loader.Loader):
    """Notes from files alone."""

    def _load_data(self) -> None:
        paths = sorted(Path(self._reporoot, self._notespath).glob("*.yaml"))
        self._cache = {"file-contents": {path.name: yaml.safe_load(path.read_text()) for path in paths}}
        self._scanner_output = {_VERSION: [(path.name, "") for path in paths]}


class UnreleasedNotes(SphinxDirective):
    """Renders the notes, a section for each kind."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        conf = config.Config(str(ROOT), "releasenotes")
        text = formatter.format_report(Files(conf), conf, [_VERSION], show_source=False)
        container = nodes.Element()
        lines = StringList(text.splitlines(), source="releasenotes")
        self.state.nested_parse(lines, self.content_offset, container, match_titles=True)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("unreleased-notes", UnreleasedNotes)
    return {"parallel_read_safe": True}
