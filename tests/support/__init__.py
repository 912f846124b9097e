"""The environment of the pool for tests and trials: servers, clouds, guest images and the testbed.

Not part of the installed package; programs that import it have the directory `tests` on their path (`IMPORT_PATH`).
"""

import os
from pathlib import Path

IMPORT_PATH = str(Path(__file__).parents[1])


def environment() -> dict[str, str]:
    """Return our environment, extended so that a Python process can import this package."""
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([IMPORT_PATH, *others])}
