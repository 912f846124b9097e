"""The current requests of this process: the filter's results, kept for later passes and for the weighers."""

import threading
import weakref
from typing import Any

from fpga_pool.nova_plugin.request import Request


class Requests:
    """The current requests, each kept as long as Nova keeps its RequestSpec; thread-safe."""

    def __init__(self) -> None:
        # Reentrant, as the garbage collector may call `_forget` in a thread that holds the lock.
        self._lock = threading.RLock()
        self._of: dict[int, tuple[weakref.ref[Any], Request]] = {}

    def get(self, spec: Any) -> Request | None:
        """Return the results of the filter for a request; None if the filter did not examine it.

        It takes no lock, because every weigher calls it for every request, including those without accelerators.
        """
        found = self._of.get(id(spec))
        return found[1] if found is not None and found[0]() is spec else None

    def keep(self, spec: Any, request: Request) -> None:
        """Store the results of the filter for the next pass and the weighers."""
        key = id(spec)
        with self._lock:
            self._of[key] = weakref.ref(spec, lambda gone: self._forget(key, gone)), request

    def drop(self, spec: Any) -> None:
        """Forget an earlier request with the same RequestSpec."""
        with self._lock:
            self._of.pop(id(spec), None)

    def _forget(self, key: int, gone: "weakref.ref[Any]") -> None:
        """Remove the entry of a RequestSpec that no longer exists, unless another one has its id by now."""
        with self._lock:
            found = self._of.get(key)
            if found is None or found[0] is not gone:
                return
            del self._of[key]
        found[1].ended()


REQUESTS = Requests()
