"""Serves the files of the dashboard.

They are public, like the documents of versions: all data comes by the REST API, with the caller's token.  All files are
read when the application is made, so a request selects one of a fixed table and never names a path.
"""

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from flask import Flask, Response, abort, request
from flask.typing import ResponseReturnValue

#: Where it is, below the root of the API.
PREFIX = "/dashboard/"

_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: The page loads its own files and talks to its own API, and nothing else; no script or style stands in its text.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    )
)
HEADERS = {
    # A new version of the package is seen at the next request; an unchanged file is not sent again.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def add_dashboard(app: Flask) -> None:
    """Let an application serve the dashboard."""
    table = {name: _read(file) for name, file in _walk(files("fpga_pool.api.dashboard") / "static", "")}

    def show_file(name: str = "index.html") -> ResponseReturnValue:
        found = table.get(name)
        if found is None:
            abort(404, "no such file of the dashboard")
        response = Response(found.content, mimetype=found.media_type, headers=HEADERS)
        response.set_etag(found.etag)
        return response.make_conditional(request)

    # The addresses in the page are relative to it: without the slash at the end they would lead elsewhere.
    app.add_url_rule(PREFIX, "dashboard", show_file, strict_slashes=True)
    app.add_url_rule(f"{PREFIX}<path:name>", "dashboard_file", show_file)


def _walk(directory: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    """Return the files below a directory of the package, by path from there."""
    found: list[tuple[str, Traversable]] = []
    for entry in directory.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        else:
            found.append((f"{prefix}{entry.name}", entry))
    return found


def _read(file: Traversable) -> _File:
    content = file.read_bytes()
    suffix = file.name[file.name.rindex(".") :]
    return _File(content, _TYPES[suffix], sha256(content).hexdigest())
