"""Serves the files of the dashboard.

They are public, like the version documents: all data comes from the REST API, with the caller's token.  The files are
read when the application is created, so a request selects an entry of a fixed table, not a path of the file system.
"""

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from flask import Flask, Response, abort, request
from flask.typing import ResponseReturnValue

#: Path of the dashboard below the root of the API.
PREFIX = "/dashboard/"

_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: The page may only load its own files and call its own API; inline scripts and styles are not allowed.
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
    # Clients revalidate at each request, so that updates are seen at once and unchanged files are not sent again.
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
    """Add the routes of the dashboard to an application."""
    table = {name: _read(file) for name, file in _walk(files("fpga_pool.api.dashboard") / "static", "")}

    def show_file(name: str = "index.html") -> ResponseReturnValue:
        found = table.get(name)
        if found is None:
            abort(404, "no such file of the dashboard")
        response = Response(found.content, mimetype=found.media_type, headers=HEADERS)
        response.set_etag(found.etag)
        return response.make_conditional(request)

    # Links in the page are relative to it, so the trailing slash is required.
    app.add_url_rule(PREFIX, "dashboard", show_file, strict_slashes=True)
    app.add_url_rule(f"{PREFIX}<path:name>", "dashboard_file", show_file)


def _walk(directory: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    """Return the files below a directory of the package, each with its relative path."""
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
