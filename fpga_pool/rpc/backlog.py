"""A server in whose process few calls wait for a thread; all others stay in RabbitMQ, whose limits an operator sets.

oslo.messaging acknowledges a call when it arrives, and continues to read while its threads are busy, so no option of
RabbitMQ limits the calls that wait in the process.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from oslo_messaging.rpc.server import RPCServer

#: Maximum number of calls that wait for a thread.  After this time another one is accepted nevertheless, because
#: RabbitMQ considers a connection dead that is not read for longer.
BACKLOG, PATIENCE_S = 256, 2.0


class _Threads(ThreadPoolExecutor):
    """Thread pool whose idle threads wait for work; those of futurist, oslo.messaging's choice, poll every second."""

    def __init__(self, max_workers: int) -> None:
        super().__init__(max_workers)
        self._room = threading.Semaphore(BACKLOG)

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Have a call carried out; wait, at most PATIENCE_S, while too many calls wait for threads."""
        has_room = self._room.acquire(timeout=PATIENCE_S)
        return super().submit(self._begin, has_room, call, arguments, named)

    def _begin(
        self, has_room: bool, call: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        if has_room:
            self._room.release()
        return call(*arguments, **named)


class BoundedServer(RPCServer):
    """RPC server that accepts only few more calls than it has threads for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._executor_cls = _Threads
