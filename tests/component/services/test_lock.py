import subprocess
import sys

import pytest

from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.services.loop import exclusive

HOLD = """
import sys
from pathlib import Path
from fpga_pool.services.loop import exclusive
file = exclusive(Path(sys.argv[1]), "taken")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone_however_it_ends(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ServiceUnavailable, match="another one runs here"):
            exclusive(tmp_path / "lock", "another one runs here")
        holder.kill()
        holder.wait()
        exclusive(tmp_path / "lock", "another one runs here").close()
