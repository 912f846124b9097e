"""Number of words of a text, as `wc -w` counts: runs of bytes that are not ASCII white space.

Result: the decimal number and a newline.
"""

from pathlib import Path

import numpy as np

from fpga_pool.drivers.slots.functions.streams import chunks

#: (256,) is this byte white space?
_IS_SPACE = np.isin(np.arange(256), np.frombuffer(b" \t\n\v\f\r", np.uint8))


def run(source: Path, sink: Path) -> None:
    """Write the number of words of `source` to `sink`."""
    words = 0
    after_space = True
    with source.open("rb") as file:
        for chunk in chunks(file):
            space = _IS_SPACE[np.frombuffer(chunk, np.uint8)]
            # A word begins where a byte that is not space follows one that is; the first looks at the last chunk.
            words += int(after_space and not space[0]) + int(np.count_nonzero(space[:-1] > space[1:]))
            after_space = bool(space[-1])
    sink.write_text(f"{words}\n")
