"""A server in whose process few calls wait for a thread: more stay in RabbitMQ, whose bounds are an operator's.

oslo.messaging acknowledges a call when it arrives, and reads on while its threads are busy: no option of RabbitMQ
bounds those that wait here.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from oslo_messaging.rpc.server import RPCServer

#: Calls that wait for a thread.  Another one is taken after so long all the same: RabbitMQ takes a connection that is
#: not read for longer for dead.
BACKLOG, PATIENCE_S = 256, 2.0


class _Threads(ThreadPoolExecutor):
    """Idle threads wait until there is work; those of futurist, oslo.messaging's choice, look for it every second."""

    def __init__(self, max_workers: int) -> None:
        super().__init__(max_workers)
        self._room = threading.Semaphore(BACKLOG)

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Have a call carried out; wait while too many do."""
        has_room = self._room.acquire(timeout=PATIENCE_S)
        return super().submit(self._begin, has_room, call, arguments, named)

    def _begin(
        self, has_room: bool, call: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        if has_room:
            self._room.release()
        return call(*arguments, **named)


class BoundedServer(RPCServer):
    """Takes no more calls than it has threads for, but for a few."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._executor_cls = _Threads
