"""Registration of API processes with the pool: each announces itself periodically, and at its end that it ends."""

import atexit
import logging
import os
import threading
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.model.objects.hosts import ANNOUNCE_S
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.loop import Loop

LOG = logging.getLogger(__name__)


#: Maximum time that the start and the end of a process wait for its announcement, if the message bus is unavailable.
ANNOUNCED_S = 3.0


class Presence:
    """Announces the process in which `begin` was called; after a fork, the child calls `begin` separately."""

    def __init__(self, scheduler: SchedulerAPI) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        #: Id of the announced process; 0 = none.
        self._process = 0

    def begin(self, patience_s: float = 0.0) -> None:
        """Announce this process from now on; ignored if it is announced already.

        Returns after the first announcement, or after `patience_s`.
        """
        if self._process == os.getpid():
            return
        with self._lock:
            if self._process == os.getpid():
                return
            self._announced, self._ending, self._ended = threading.Event(), threading.Event(), threading.Event()
            self._loop = Loop("announce", self._announce, ANNOUNCE_S)
            self._loop.start()
            self._process = os.getpid()
        self._announced.wait(patience_s)

    def end(self) -> None:
        """Announce that this process ends, if it was announced, so that it is reported as gone and not as down.

        The announcing thread does so; if it cannot, the pool notices the end by the missing announcements.
        """
        if self._process != os.getpid():
            return
        self._ending.set()
        self._loop.wake()
        self._ended.wait(ANNOUNCED_S)

    def _announce(self) -> bool:
        ending = self._ending.is_set()
        try:
            self._scheduler.announce(os.getpid(), ending=ending)
        except (FpgaPoolError, MessagingError, RuntimeError) as error:  # RuntimeError: no thread can start at exit
            LOG.debug("announcing this process failed: %s", error)
        self._announced.set()
        if ending:
            self._loop.stop()
            self._ended.set()
        return False


def announced(application: WSGIApplication, scheduler: SchedulerAPI) -> WSGIApplication:
    """Return the application, whose process is announced at its first request, as its server may fork before that."""
    presence = Presence(scheduler)
    atexit.register(presence.end)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        presence.begin()
        return application(environ, start_response)

    return answer
