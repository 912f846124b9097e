"""Software model of an accelerator that keeps up with its link: it has counted a byte when the byte is there.

A word counter at line rate ends with its input's last byte.  A model that reads the whole input after its arrival
would end later, and take the testbed's processors away from its network meanwhile.  Result: the number of bytes and a
newline.
"""

from pathlib import Path


def run(source: Path, sink: Path) -> None:
    """Write the size of `source` to `sink`."""
    sink.write_text(f"{source.stat().st_size}\n")
