"""Work that takes as long for many as for one."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Grouped(Generic[T]):
    """Does `work` on items, as many at once as have come; one thread does so for all, and the others go on.

    `work` is called by whoever adds an item while nobody works, again and again until none is left.  What it raises is
    raised there; the items it was given are its own to mind.
    """

    def __init__(self, work: Callable[[list[T]], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._items: list[T] = []
        self._working = False

    def add(self, item: T) -> None:
        """Have the item done: now, or by whoever is at work, with the next group."""
        with self._lock:
            self._items.append(item)
            if self._working:
                return
            self._working = True
        try:
            while group := self._take():
                self._work(group)
        except BaseException:
            with self._lock:
                self._working = False
            raise

    def _take(self) -> list[T]:
        with self._lock:
            group, self._items = self._items, []
            self._working = bool(group)
            return group
