"""Sorted queues of gangs."""

import numpy as np

from fpga_pool.core.types import Floats, Ints


class Rows:
    """Gangs ordered by a key, those of one key by their index; the first `count` of `rows` and `keys` are there."""

    __slots__ = ("_insert", "_remove", "_room", "count", "keys", "rows")

    def __init__(self) -> None:
        from fpga_pool.core.gangs import scans

        self._insert, self._remove = scans.insert, scans.remove
        self._room = 64
        self.count = 0
        self.rows: Ints = np.empty(self._room, np.int64)
        self.keys: Floats = np.empty(self._room)

    def __len__(self) -> int:
        return self.count

    def present(self) -> list[int]:
        """Return the gangs in order."""
        found: list[int] = self.rows[: self.count].tolist()
        return found

    def add(self, gang: int, key: float) -> None:
        """Insert a gang."""
        count = self.count
        if count == self._room:
            self._room *= 2
            self.rows = np.concatenate((self.rows, np.empty_like(self.rows)))
            self.keys = np.concatenate((self.keys, np.empty_like(self.keys)))
        self._insert(self.keys, self.rows, count, key, gang)
        self.count = count + 1

    def remove(self, gang: int, key: float) -> None:
        """Take a gang out that is there."""
        if not self._remove(self.keys, self.rows, self.count, key, gang):
            raise ValueError(f"gang {gang}: not in this queue")
        self.count -= 1
