"""The files of the dashboard, as served by the API."""

import re
from importlib.resources import files

import pytest

from fpga_pool.api.app import create_app
from support.browser import running_browser, watched_page

STATIC = files("fpga_pool.api.dashboard") / "static"


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


def test_the_page_comes_with_a_policy_that_admits_its_own_files_only(api):
    answer = api.get("/dashboard/")
    assert answer.status_code == 200
    assert answer.mimetype == "text/html"
    rules = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_the_page_has_no_script_or_style_in_its_text_and_names_no_other_server(api):
    page = api.get("/dashboard/").text
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=|javascript:", page) == []
    assert re.findall(r"(?:src|href)=\"(?!#|[\w./-]+\")[^\"]*", page) == []


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("index.html", "text/html"),
        ("dashboard.css", "text/css"),
        ("icon.svg", "image/svg+xml"),
        ("js/main.js", "text/javascript"),
    ],
)
def test_every_file_has_its_type(api, name, media_type):
    answer = api.get(f"/dashboard/{name}")
    assert (answer.status_code, answer.mimetype) == (200, media_type)
    assert answer.data == STATIC.joinpath(name).read_bytes()
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_file_that_has_not_changed_is_not_sent_again(api):
    first = api.get("/dashboard/js/main.js")
    again = api.get("/dashboard/js/main.js", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


def test_the_address_without_a_slash_leads_to_the_page(api):
    answer = api.get("/dashboard")
    assert answer.status_code == 308
    assert answer.headers["Location"].endswith("/dashboard/")


@pytest.mark.parametrize(
    "path",
    ["../routes.py", "..%2froutes.py", "js/../../routes.py", "%2e%2e/__init__.py", "etc/passwd", "js", "js/", "a\0b"],
)
def test_nothing_else_is_served(api, path):
    answer = api.get(f"/dashboard/{path}")
    assert answer.status_code == 404
    assert answer.json["errors"][0]["code"] == "fpga_pool.no_such_path"


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_it_takes_nothing(api, method):
    assert getattr(api, method)("/dashboard/index.html").status_code == 405


def test_every_module_that_is_imported_is_there():
    scripts = {path.name: path.read_text() for path in (STATIC / "js").iterdir()}
    imported = {name for text in scripts.values() for name in re.findall(r'(?:from |URL\()"(?:\./)?([\w]+\.js)"', text)}
    assert imported | {"main.js"} == scripts.keys()


def test_the_place_of_a_job_is_on_one_line_in_the_detail_of_its_batch(pool, serve):
    url = serve(pool)
    job = {"function": "sha256", "requester": "node-1", "input_bytes": 5, "name": "a job with a name of many words"}
    created = create_app(pool).test_client().post("/v1/batches", json={"jobs": [job]})
    with running_browser() as browser, watched_page(browser, url) as dashboard:
        dashboard.open(f"queue/batch/{created.json['batch']['uuid']}")
        place = dashboard.page.locator("#detail").get_by_role("button", name="node-1/card-0/r0")
        place.wait_for()
        lines = """one => {
            const text = document.createRange();
            text.selectNodeContents(one);
            return new Set([...text.getClientRects()].map(box => box.top)).size;
        }"""
        assert place.evaluate(lines) == 1
