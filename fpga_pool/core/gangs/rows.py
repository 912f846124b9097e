"""Gangs in an order, as arrays that can be scanned."""

import numpy as np

from fpga_pool.core.gangs.compiled import fastest
from fpga_pool.core.types import Floats, Ints


class Rows:
    """Gangs ordered by a key, those of one key by their index; the first `count` of `rows` and `keys` are there."""

    __slots__ = ("_scans", "count", "keys", "rows")

    def __init__(self) -> None:
        self._scans = fastest()
        self.count = 0
        self.rows: Ints = np.empty(64, np.int64)
        self.keys: Floats = np.empty(64)

    def __len__(self) -> int:
        return self.count

    def present(self) -> list[int]:
        """Return the gangs in order."""
        found: list[int] = self.rows[: self.count].tolist()
        return found

    def add(self, gang: int, key: float) -> None:
        """Insert a gang."""
        if self.count == len(self.rows):
            self.rows = np.concatenate((self.rows, np.empty_like(self.rows)))
            self.keys = np.concatenate((self.keys, np.empty_like(self.keys)))
        self._scans.insert(self.keys, self.rows, self.count, key, gang)
        self.count += 1

    def remove(self, gang: int, key: float) -> None:
        """Take a gang out that is there."""
        if not self._scans.remove(self.keys, self.rows, self.count, key, gang):
            raise ValueError(f"gang {gang}: not in this order")
        self.count -= 1
