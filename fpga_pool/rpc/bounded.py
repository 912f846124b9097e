"""Calls that end in time: oslo.messaging waits without limit for an unavailable broker, whatever the timeout.

A call that is given up may still be carried out when the broker is back, so every call of the pool must do no harm if
it arrives late or twice.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import oslo_messaging as messaging

from fpga_pool.model.exceptions import FpgaPoolError, OtherRun

T = TypeVar("T")

#: Maximum number of threads; while all are busy, further calls wait, or are given up without having been sent.
THREADS = 64
#: While this many timed-out calls still wait for the broker, no thread is started for another one: each connects
#: separately, and the returning broker would first handle calls that no caller waits for.
MAX_STUCK = 3
#: A thread that is idle for this long ends.
IDLE_S = 30.0
#: How long after its own timeout a call is given up.
GRACE_S = 1.0
#: How many times a call is signed again for a server that was restarted while the call waited for it.
STARTS = 3


def signed_again(call: Callable[[], T], forget: Callable[[], object]) -> T:
    """Return what a call returns; if the server was restarted, repeat it after `forget`, which drops the known run."""
    for _ in range(STARTS):
        with contextlib.suppress(OtherRun):
            return call()
        forget()
    return call()


class Caller:
    """Makes calls in daemon threads; thread-safe."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[object], Callable[[], object]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        #: Number of calls that no thread has begun yet.
        self._waiting = 0
        self._stuck = 0

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """Return what `call` returns; raise MessagingTimeout if it does not return within its timeout."""
        future: Future[T] = Future()
        self._provide_thread()
        self._calls.put((future, call))  # type: ignore[arg-type]
        try:
            return future.result(timeout_s + GRACE_S)
        except TimeoutError:
            if not future.cancel():
                self._note_stuck(future)
            raise messaging.MessagingTimeout(
                f"no response within {timeout_s:g} s; is the message broker running?"
            ) from None
        except FpgaPoolError as error:
            _restore_class(error)
            raise

    def _note_stuck(self, future: Future[T]) -> None:
        with self._lock:
            self._stuck += 1
        future.add_done_callback(self._note_unstuck)

    def _note_unstuck(self, _: object) -> None:
        with self._lock:
            self._stuck -= 1

    def _provide_thread(self) -> None:
        with self._lock:
            self._waiting += 1
            enough = self._idle >= self._waiting
            if enough or self._threads >= THREADS or self._stuck >= MAX_STUCK:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="rpc-call", daemon=True).start()

    def _work(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                future, call = self._next()
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(call())
                    except BaseException as error:  # raised in the caller's thread
                        future.set_exception(error)
        with self._lock:
            self._threads -= 1

    def _next(self) -> tuple[Future[object], Callable[[], object]]:
        found = None
        with self._lock:
            self._idle += 1
        try:
            found = self._calls.get(timeout=IDLE_S)
        finally:
            with self._lock:
                self._idle -= 1
                self._waiting -= found is not None
        return found


def _restore_class(error: FpgaPoolError) -> None:
    """Restore the class of a received error: oslo.messaging's class has the server's traceback in its text."""
    kind = type(error)
    if kind.__name__.endswith("_Remote"):
        error.__class__ = kind.__bases__[0]
