"""The benchmarks of the documentation start and print their tables: the commands of their page in order, shortened.

They run in a clone of the repository with the current tests, as one of them creates a second checkout beside it.
"""

import shutil
import subprocess
from dataclasses import replace

import pytest

from support.pages import ROOT, pages, path_of, run

PAGE = "contributor/performance"
#: Parts of the commands, and the replacements that make them short.
SHORTER = {
    "COMMIT": "HEAD",
    "--rounds 3": "--rounds 1",
    "test_ranking.py": "test_ranking.py -k bounds",
    "nova_boots.py": "nova_boots.py -k eight",
    "nova_day.py": "nova_day.py 50",
    "nova_makespan.py 10": "nova_makespan.py 1",
    "reserving.py 20": "reserving.py 1",
    "test_dashboard.py": "test_dashboard.py -k tiers",
    "REST_LOAD_S=300": "REST_LOAD_S=2",
    "AT_REST_S=60": "AT_REST_S=2",
    "COMPUTES=500": "COMPUTES=5",
}
SMALL = {"JOBS": "10", "ROUNDS": "1", "BATCHES": "1", "TASKS": "100"}
TIMEOUT_S = 900.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(1000)]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the source is not a clone")
def test_every_benchmark_runs(tmp_path):
    here = tmp_path / "here"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, here], check=True, timeout=60)
    shutil.copytree(ROOT / "tests", here / "tests", dirs_exist_ok=True)
    shown = pages()[PAGE]
    assert [part for part in SHORTER if not any(part in one.text for one in shown)] == []
    todo = []
    for one in shown:
        text = one.text
        for part, shorter in SHORTER.items():
            text = text.replace(part, shorter)
        todo.append(replace(one, text=text))
    assert run(path_of(PAGE), here, todo, pool=False, timeout_s=TIMEOUT_S, extra=SMALL) == []
