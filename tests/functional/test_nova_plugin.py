"""The plug-in within Nova, in separate processes, as Nova keeps its configuration in global variables."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "nova"

#: Files whose tests depend on Nova's threading backend; the selection of a host starts no threads.
OF_EVENTLET = ("test_answers", "test_boots", "test_concurrent")

#: Files that also run without `--long`.
SHORT = ("test_boots", "test_handlers", "test_learned")

#: Nova's own tests that a filter or a weigher could break.
OWN_TESTS = [
    "nova.tests.unit.scheduler.test_filters",
    "nova.tests.unit.scheduler.test_manager",
    "nova.tests.unit.scheduler.test_host_manager",
    "nova.tests.functional.test_scheduler",
    "nova.tests.functional.test_servers_provider_tree::ProviderTreeTests::test_reshape",
]

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("nova", "placement", "oslotest", "wsgi_intercept")),
    reason="Nova's fixtures are not installed (extra: test)",
)


@pytest.fixture
def run(tmp_path):
    """Run pytest in a separate process; tests that fail or skip there fail or skip the test here."""

    def run(*arguments, timeout_s, **environment):
        results = tmp_path / "results.xml"
        done = subprocess.run(
            [
                *(sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *(f"--junitxml={results}", *map(str, arguments)),
            ],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
        cases = ElementTree.parse(results).iter("testcase")
        skipped = [f"{case.get('name')}: {reason.get('message')}" for case in cases for reason in case.iter("skipped")]
        if skipped:
            pytest.skip(f"{len(skipped)} tests within skipped: {'; '.join(skipped)}")

    return run


@pytest.mark.timeout(1800)
def test_novas_scheduler_chooses_with_the_plugin(run, pytestconfig):
    files = [TESTS] if pytestconfig.getoption("long") else [TESTS / f"{name}.py" for name in SHORT]
    run("-c", TESTS / "pytest.ini", *files, timeout_s=1780, OS_NOVA_DISABLE_EVENTLET_PATCHING="1")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_novas_scheduler_chooses_with_the_plugin_under_eventlet(run):
    files = [TESTS / f"{name}.py" for name in OF_EVENTLET]
    run("-c", TESTS / "pytest.ini", *files, timeout_s=1780, OS_NOVA_DISABLE_EVENTLET_PATCHING="no")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_novas_own_tests_pass_with_the_plugin_in_its_default_options(run):
    run(
        *("-c", TESTS / "pytest.ini", "-p", "enabled", "--pyargs", *OWN_TESTS),
        timeout_s=1780,
        OS_NOVA_DISABLE_EVENTLET_PATCHING="1",
        PYTHONPATH=str(TESTS),
    )
