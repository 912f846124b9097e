"""Blocks traffic of TCP ports of this machine."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from fpga_pool.model.exceptions import ServiceUnavailable
from support.servers.process import find_program

#: What happens to packets: they are lost, or end the connections to which they belong.
LOST, REFUSED = "drop", "reject with tcp reset"

_RULES = """\
add table inet {table} {{ flags owner; }}
add chain inet {table} packets {{ type filter hook input priority 0; }}
add rule inet {table} packets tcp dport {port} {fate}
add rule inet {table} packets tcp sport {port} {fate}
list table inet {table}
"""


@contextmanager
def parted(port: int, fate: str) -> Iterator[None]:
    """Block all packets from and to a TCP port; raise ServiceUnavailable if that is not possible here."""
    table = f"parted_{port}"
    # The kernel removes the table when the process that owns it ends, that is, when its input is closed.
    command = [find_program("nft") or "nft", "--interactive"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write(_RULES.format(table=table, port=port, fate=fate))
        owner.stdin.flush()
        if not (said := owner.stdout.readline()).startswith(f"table inet {table}"):
            raise ServiceUnavailable(f"nft: {said.strip()}")
        yield
