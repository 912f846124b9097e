"""Matrix-vector product.

Input: unsigned 32-bit rows and columns, the vector (columns), then the matrix row by row; all values 32-bit floats,
little-endian.  Result: rows 32-bit floats, little-endian; sums are taken in 64 bits.
"""

from pathlib import Path

import numpy as np

from fpga_pool.drivers.slots.functions.streams import CHUNK_BYTES, read_exactly, read_header, require_size

_FLOAT = np.dtype("<f4")
_LIMITS = {"rows": 2**32 - 1, "columns": 2**20}


def run(source: Path, sink: Path) -> None:
    """Write the product of the matrix and the vector in `source` to `sink`."""
    with source.open("rb") as file, sink.open("wb") as out:
        rows, columns = read_header(file, _LIMITS)
        require_size(source, 8 + 4 * columns * (1 + rows))
        vector = np.frombuffer(read_exactly(file, 4 * columns, "vector"), _FLOAT).astype(np.float64)
        rows_at_once = max(1, CHUNK_BYTES // (4 * columns))
        for first in range(0, rows, rows_at_once):
            count = min(rows_at_once, rows - first)
            block = np.frombuffer(read_exactly(file, 4 * columns * count, "matrix"), _FLOAT)
            # Values beyond the range of 32-bit floats become infinite, as in the accelerator's own arithmetic.
            with np.errstate(over="ignore", invalid="ignore"):
                product = (block.reshape(count, columns).astype(np.float64) @ vector).astype(_FLOAT)
            out.write(product.tobytes())
