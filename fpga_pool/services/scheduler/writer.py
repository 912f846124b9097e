"""Requests on one shard, carried out together: as many as wait share one transaction, and one sync to disk."""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fpga_pool.model.exceptions import Contended, ServiceUnavailable
from fpga_pool.model.transaction import Transaction
from fpga_pool.rpc.tracing import causing_request

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Requests in one transaction at most: while it lasts no other scheduler can change the shard.
GROUP = 64
#: How often one is tried that other writers were in the way of.
ATTEMPTS = 5


@dataclass(slots=True)
class _Request:
    work: Callable[[Transaction], Any]
    #: That of the thread that waits for it: another one may carry it out.
    id: str = field(default_factory=causing_request)
    done: bool = False
    answer: Any = None
    error: BaseException | None = None

    def carry_out(self, tx: Transaction) -> Any:
        """Return the answer; what is changed has this request as its cause."""
        tx.request_id = self.id
        return self.work(tx)


class ShardWriter:
    """Executes work in transactions on one shard; the first thread does so for all waiting ones."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Transaction]]) -> None:
        self._begin = begin
        self._waiting: list[_Request] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, once it is committed; what it raises, and nothing of it was done.

        It may be called more than once, each time in a new transaction.
        """
        request = _Request(work)
        with self._lock:
            self._waiting.append(request)
        while not request.done:
            with self._turn:
                if not request.done:
                    with self._lock:
                        group, self._waiting = self._waiting[:GROUP], self._waiting[GROUP:]
                    self._carry_out(group)
        if request.error is not None:
            raise request.error
        answer: T = request.answer
        return answer

    def _carry_out(self, group: list[_Request]) -> None:
        try:
            if len(group) == 1 or not self._together(group):
                for request in group:
                    self._alone(request)
        finally:
            # An interrupted thread leaves the requests that it did not get to; their own threads carry them out.
            with self._lock:
                self._waiting[:0] = [request for request in group if not request.done]

    def _together(self, group: list[_Request]) -> bool:
        """Carry out all in one transaction; False if one of them failed, and so none was done."""
        answers: list[Any] = []
        try:
            with self._begin() as tx:
                answers += (request.carry_out(tx) for request in group)
        except BaseException as error:
            # An interrupted commit may have taken place: nothing is done a second time.
            interrupted = len(answers) == len(group) and not isinstance(error, Exception)
            if type(error) is not ServiceUnavailable and not interrupted:
                LOG.debug("%d requests are executed one by one: %s", len(group), error)
                return False
            for request in group:
                request.error, request.done = error, True
        else:
            for request, answer in zip(group, answers, strict=True):
                request.answer, request.done = answer, True
        return True

    def _alone(self, request: _Request) -> None:
        for _ in range(ATTEMPTS):
            try:
                with self._begin() as tx:
                    answer = request.carry_out(tx)
            except Contended as error:
                request.error = error
            except BaseException as error:
                request.error = error
                break
            else:
                request.answer, request.error = answer, None
                break
        request.done = True
