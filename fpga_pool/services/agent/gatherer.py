"""Inputs that are results of other jobs: linked if the results are on this host, else copied from other agents."""

import contextlib
import hashlib
import logging
import os
import shutil
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent.objects import HeldJob, Phase
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound
from fpga_pool.model.messages.agents import InputSource
from fpga_pool.model.messages.requests import SourceTicket
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.agent.shell import AgentShell
from fpga_pool.transfer.client import connect

LOG = logging.getLogger(__name__)

#: Inputs gathered at once.
WORKERS = 4
#: First and longest pause between tries; the pause doubles after each try.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
CONNECT_S, RESULT_S = 5.0, 3600.0

#: Returns tickets for the sources of a job's attempt, in their order; raises Conflict or NotFound if there are none.
Tickets = Callable[[str, int], list[SourceTicket]]


class _Differs(FpgaPoolError):
    """A result differs from the one that the pool expects."""


class Gatherer:
    """Assembles inputs from results; `gather` may be called from any thread.

    Gathering is retried until the input is complete, the agent no longer holds the attempt, or the pool says that a
    result is lost. In the last case the attempt fails, and the pool decides what to do. The pool also decides how long
    to wait for a silent agent: it withdraws the job when the time for its input is over.
    """

    def __init__(self, host: str, shell: AgentShell, tickets: Tickets, peer_tls: ssl.SSLContext | None = None) -> None:
        self._host = host
        self._shell = shell
        self._tickets = tickets
        self._peer_tls = peer_tls
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix=f"gather-{host}")
        self._ending = threading.Event()

    def gather(self, job: HeldJob) -> None:
        """Start to gather the input of an attempt."""
        self._submit(job, FIRST_PAUSE_S)

    def stop(self) -> None:
        """Stop all transfers; incomplete ones begin again at the next start of the agent."""
        self._ending.set()
        self._workers.shutdown(wait=True, cancel_futures=True)

    def _submit(self, job: HeldJob, pause_s: float) -> None:
        with contextlib.suppress(RuntimeError):  # it has been stopped meanwhile
            self._workers.submit(self._try, job, pause_s)

    def _try(self, job: HeldJob, pause_s: float) -> None:
        if self._ending.is_set() or self._shell.get(job.uuid) != job:
            return
        place = self._shell.files.gathered_path(job.uuid, job.attempt)
        try:
            self._make(job, place)
            self._shell.staged_from(job, place)
        except (Conflict, NotFound, _Differs) as error:
            LOG.warning("job %s: its input cannot be gathered: %s", job.uuid, error)
            self._shell.feed(e.InputUnavailable(job=job.uuid, attempt=job.attempt, message=str(error)))
        except Exception as error:
            known = isinstance(error, FpgaPoolError | MessagingError | OSError)
            LOG.warning("job %s: its input is not complete: %s", job.uuid, error, exc_info=None if known else error)
            again = threading.Timer(pause_s, self._submit, (job, min(2 * pause_s, LONGEST_PAUSE_S)))
            again.daemon = True
            again.start()
        finally:
            place.unlink(missing_ok=True)

    def _make(self, job: HeldJob, place: Path) -> None:
        """Write the input of an attempt durably, or link it if it is a single result on this host."""
        place.unlink(missing_ok=True)
        sources = job.assignment.sources
        here = [self._held_here(source) for source in sources]
        begun = partial(self._shell.meter.begun, job.uuid, job.attempt)
        tickets = {} if all(here) else {ticket.job: ticket for ticket in self._tickets(job.uuid, job.attempt)}
        if len(sources) == 1:
            self._fetch(sources[0], tickets.get(sources[0].job), place, begun)
            return
        piece = place.with_name(f"{place.name}.piece.part")
        try:
            with place.open("xb") as whole:
                for source in sources:
                    self._fetch(source, tickets.get(source.job), piece, begun)
                    with piece.open("rb") as part:
                        shutil.copyfileobj(part, whole)
                    piece.unlink()
                whole.flush()
                os.fsync(whole.fileno())
        finally:
            piece.unlink(missing_ok=True)

    def _held_here(self, source: InputSource) -> bool:
        held = self._shell.get(source.job) if source.host == self._host else None
        return held is not None and (held.phase, held.attempt) == (Phase.HELD, source.attempt)

    def _fetch(self, source: InputSource, ticket: SourceTicket | None, place: Path, begun: Callable[[], None]) -> None:
        """Store one result at `place`, checked and durable; `begun` is called when bytes come from another host."""
        if ticket is None:
            self._take(source, place)
            return
        if self._peer_tls is not None and not ticket.tls:
            raise InvalidInput(
                f"host {source.host}: its data port offers no TLS, expected TLS since a context was given"
            )
        tls = (self._peer_tls or ssl.create_default_context()) if ticket.tls else None
        with connect((ticket.address, ticket.port), CONNECT_S, ssl_context=tls, cancel=self._ending) as connection:
            result = connection.fetch(ticket.token, place, RESULT_S, lambda _: begun())
        if result.sha256 != source.result_sha256:
            raise _Differs(f"the result of job {source.job} on host {source.host} has changed")

    def _take(self, source: InputSource, place: Path) -> None:
        """Link or copy a result on this host, because its job may be released at any moment."""
        files = self._shell.files
        small = files.small_result(source.job)
        if small is None:
            place.hardlink_to(files.result_path(source.job))
            return
        if hashlib.sha256(small).hexdigest() != source.result_sha256:
            raise _Differs(f"the result of job {source.job} on this host has changed")
        with place.open("xb") as file:
            file.write(small)
            file.flush()
            os.fsync(file.fileno())
