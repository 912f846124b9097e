"""SHA-256 of the input.  Result: 64 hexadecimal digits and a newline."""

import hashlib
from pathlib import Path


def run(source: Path, sink: Path) -> None:
    """Write the digest of `source` to `sink`."""
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    sink.write_text(f"{digest.hexdigest()}\n")
