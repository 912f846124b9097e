"""The package's entry points for Nova can be loaded, and the documented nova.conf repeats Nova's filters.

Nova runs in a separate process, because it changes defaults of the libraries that it shares with the other tests.
"""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

NOVA_CONF = Path(__file__).parents[3] / "doc" / "source" / "admin" / "first-vm" / "nova.conf"
#: Loads entry points, and prints the filters that are enabled by default.
LOAD = """
import sys
from importlib.metadata import EntryPoint
for line in sys.stdin:
    loaded = EntryPoint(*line.split()).load()
    # Nova takes modules with a function of this name for validators.
    assert callable(getattr(loaded, "register", loaded)), loaded
import nova.conf
print(",".join(nova.conf.CONF.filter_scheduler.enabled_filters))
"""


@pytest.fixture(scope="module")
def default_filters():
    """Return Nova's default of `enabled_filters`, printed after all entry points were loaded."""
    offered = [entry for entry in distribution("fpga_pool").entry_points if "nova_plugin" in entry.module]
    assert len(offered) > 10
    lines = "".join(f"{entry.name} {entry.value} {entry.group}\n" for entry in offered)
    command = [sys.executable, "-W", "ignore", "-c", LOAD]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_names_the_filters_that_nova_has_by_itself_again(default_filters):
    assert f"\nenabled_filters = FpgaPoolSlotFilter,{default_filters}" in NOVA_CONF.read_text()
