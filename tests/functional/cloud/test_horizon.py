"""The panel in a real Horizon beside the cloud: users log in there, and see what their roles permit."""

import subprocess
import urllib.request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from support import environment
from support.browser import load, running_browser
from support.servers.process import spawn
from support.servers.server import free_ports
from support.waiting import wait_until

pytestmark = [pytest.mark.timeout(1200)]

START_TIMEOUT_S = 300.0
#: Horizon compiles its style sheets for the first page.
FIRST_PAGE_MS = 300_000
COLLECT_TIMEOUT_S = 600.0
PORTS = range(16_000, 17_000)
#: Prefix of Keystone's tokens.
TOKEN = "gAAAAA"


@pytest.fixture(scope="module")
def horizon(all_in_one, scheduler, tmp_path_factory):
    """The URL of Horizon's development server."""
    started = all_in_one.run("restart", "fpga-pool-api")
    assert started.returncode == 0, started.stderr
    scheduler.hosts()  # from now on a scheduler answers the API without delay
    directory = tmp_path_factory.mktemp("horizon")
    (port,) = free_ports(1, PORTS)
    url, log = f"http://127.0.0.1:{port}", directory / "log"
    settings = {
        "DJANGO_SETTINGS_MODULE": "support.cloud.horizon_settings",
        "HORIZON_STATIC_ROOT": str(directory / "static"),
    }
    serve = ["-W", "ignore", "-m", "django", "runserver", "--noreload", urlsplit(url).netloc]
    command = [str(all_in_one.programs / "python"), *serve]
    process = spawn(command, log, env=environment() | all_in_one.environment | settings)

    def answers():
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            return urllib.request.urlopen(f"{url}/auth/login/", timeout=START_TIMEOUT_S).status == 200
        except HTTPError:
            pytest.fail(log.read_text()[-4000:])
        except URLError:
            return False

    try:
        wait_until(answers, "Horizon answers", START_TIMEOUT_S)
        yield url
    finally:
        process.kill()
        process.wait()


class User:
    """A user in a browser who has logged in to Horizon, and the requests of the browser."""

    def __init__(self, page, horizon, name, password):
        self.page, self.horizon, self.requests = page, horizon, []
        page.set_default_timeout(FIRST_PAGE_MS)
        page.on("request", lambda request: self.requests.append(request))
        load(page, f"{horizon}/auth/login/?next=/project/fpga_pool/")
        page.locator("#id_username").fill(name)
        page.locator("#id_password").fill(password)
        page.locator("#loginBtn").click()
        page.wait_for_url(f"{horizon}/project/fpga_pool/")
        self.views = page.frame_locator("#fpga-pool")

    @property
    def status(self):
        return self.views.get_by_role("status")


@pytest.fixture(scope="module")
def browser():
    with running_browser() as browser:
        yield browser


@pytest.fixture
def log_in(horizon, all_in_one, browser):
    contexts = []

    def log_in(name):
        contexts.append(browser.new_context(viewport={"width": 1440, "height": 1000}))
        return User(contexts[-1].new_page(), horizon, name, all_in_one.environment["OS_PASSWORD"])

    yield log_in
    for context in contexts:
        context.close()


def test_an_operator_sees_slots_and_drains_one(horizon, admin, log_in):
    pool = admin.adapter("fpga")
    slots = pool.get("/v1/slots").json()["slots"]
    slot = next(slot for slot in slots if slot["state"] == "EMPTY")  # no job runs there, so it drains immediately
    user = log_in("admin")
    page, views = user.page, user.views
    expect(views.locator(f".slot[data-uuid='{slot['uuid']}']")).to_be_visible()
    expect(user.status).to_have_text("Live")
    expect(views.get_by_role("button", name="Project")).to_be_hidden()
    load(page, f"{horizon}/admin/fpga_pool/")
    tile = views.locator(f".slot[data-uuid='{slot['uuid']}']")
    tile.click()
    detail = views.get_by_role("complementary", name="Detail")
    detail.get_by_role("button", name="Drain").click()
    views.get_by_role("textbox", name="Reason").fill("seen from Horizon")
    views.get_by_role("textbox", name="Reason").press("Enter")
    expect(tile).to_have_attribute("data-state", "DRAINED")
    assert pool.get(f"/v1/slots/{slot['uuid']}").json()["slot"]["reason"] == "seen from Horizon"

    # A page of another site has the cookies of the user, but no CSRF token.
    change = """async ([path, headers]) => (await fetch(path, {method: "PATCH", body: '{"drain": false}',
        headers: {"Content-Type": "application/json", "X-Requested-With": "XMLHttpRequest", ...headers}})).status"""
    path = f"{horizon}/admin/fpga_pool/api/v1/slots/{slot['uuid']}"
    assert page.evaluate(change, [path, {}]) == 401
    csrf = page.locator("#fpga-pool").get_attribute("data-csrf")
    assert page.evaluate(change, [f"{path}/../../../healthcheck", {"X-CSRFToken": csrf}]) == 404
    assert pool.get(f"/v1/slots/{slot['uuid']}").json()["slot"]["state"] == "DRAINED"
    detail.get_by_role("button", name="Resume").click()
    expect(tile).not_to_have_attribute("data-state", "DRAINED")

    assert {urlsplit(request.url).netloc for request in user.requests} == {urlsplit(horizon).netloc}
    assert [request.url for request in user.requests if TOKEN in str(request.all_headers())] == []
    assert TOKEN not in page.content() + page.frames[1].content()

    def is_signed_out():
        page.context.clear_cookies()  # repeatedly: a pending response may set the session's cookie again
        return user.status.text_content() == "Signed out: reload the page to log in again"

    wait_until(is_signed_out, "the page says that its session has ended")


def test_its_files_are_collected_and_compressed_among_those_of_horizon(all_in_one, tmp_path):
    settings = {
        "DJANGO_SETTINGS_MODULE": "support.cloud.horizon_settings",
        "HORIZON_STATIC_ROOT": str(tmp_path / "static"),
        "HORIZON_COMPRESSED": "offline",
    }
    for command in (["collectstatic", "--noinput"], ["compress"]):
        done = subprocess.run(
            [all_in_one.programs / "python", "-W", "ignore", "-m", "django", *command],
            env=environment() | all_in_one.environment | settings,
            capture_output=True,
            text=True,
            timeout=COLLECT_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
    collected = tmp_path / "static" / "horizon" / "lib" / "fpga_pool"
    assert {path.name for path in collected.rglob("*.html")} != set()
    assert list((tmp_path / "static").rglob("manifest.json")) != []


def test_a_member_sees_the_work_of_its_project_and_learns_why_it_sees_no_slots(horizon, log_in):
    user = log_in("demo")
    expect(user.views.get_by_role("heading", name="Queue").first).to_be_visible()
    user.views.get_by_role("link", name="Pool").click()
    expect(user.views.get_by_text("Slots are shown to operators only")).to_be_visible()
    answer = user.page.goto(f"{horizon}/admin/fpga_pool/api/v1/pool")
    assert answer.status == 403
