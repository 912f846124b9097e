"""How the pool knows of a process of the API: it says now and then that it lives, and at its end that it ends."""

import atexit
import contextlib
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


class Presence:
    """Announces the process in which `begin` was called; where that forks, the other one begins for itself."""

    def __init__(self, scheduler: SchedulerAPI) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        #: Process that is announced, 0 = none.
        self._process = 0
        self._loop = Loop("announce", self._announce, ANNOUNCE_S)

    def begin(self) -> None:
        """Announce this process from now on; nothing is done where it is announced already."""
        if self._process == os.getpid():
            return
        with self._lock:
            if self._process == os.getpid():
                return
            self._process = os.getpid()
            self._loop = Loop("announce", self._announce, ANNOUNCE_S)
            self._loop.start()

    def end(self) -> None:
        """Say that this process ends, if it was announced: it is not down, but gone."""
        if self._process != os.getpid():
            return
        self._loop.stop()
        with contextlib.suppress(FpgaPoolError, MessagingError, RuntimeError):  # the pool will notice by itself
            self._scheduler.announce(self._process, ending=True)

    def _announce(self) -> bool:
        try:
            self._scheduler.announce(self._process)
        except (FpgaPoolError, MessagingError) as error:  # /healthcheck says so, too
            LOG.debug("no scheduler has heard that this process lives: %s", error)
        return False


def announced(application: WSGIApplication, scheduler: SchedulerAPI) -> WSGIApplication:
    """Return the application, whose process is announced from its first request on: until then its server may fork."""
    presence = Presence(scheduler)
    atexit.register(presence.end)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        presence.begin()
        return application(environ, start_response)

    return answer
