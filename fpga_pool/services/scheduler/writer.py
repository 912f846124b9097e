"""Requests that are carried out together: those that wait share one transaction, one disk sync, and usage counts."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fpga_pool.model.exceptions import Contended, ServiceUnavailable
from fpga_pool.model.objects.history import Cause
from fpga_pool.model.objects.quotas import Amounts, QuotaLimits, Resource
from fpga_pool.model.transaction import Transaction
from fpga_pool.rpc.tracing import causing_request
from fpga_pool.store.quotas import lock_limits, used
from fpga_pool.store.store import Store
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)

T = TypeVar("T")
TxT = TypeVar("TxT", bound=Transaction)

#: Maximum number of requests in one transaction, during which no other scheduler can change the shard.
GROUP = 64
#: How many times a transaction is tried if it conflicts with other writers.
ATTEMPTS = 5


@dataclass(slots=True)
class _Request:
    work: Callable[[Transaction], Any]
    #: Taken from the thread that waits for the answer, because another thread may carry the request out.
    cause: Cause = field(default_factory=causing_request)
    done: bool = False
    answer: Any = None
    error: BaseException | None = None

    def carry_out(self, tx: Transaction) -> Any:
        """Carry out the work and return its answer; the changes have this request as their cause."""
        tx.cause = self.cause
        return self.work(tx)


def repeated(begin: Callable[[], AbstractContextManager[TxT]], work: Callable[[TxT], T]) -> T:
    """Return what `work` returns in a committed transaction; repeat it if it conflicts with other writers."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(Contended), begin() as tx:
            return work(tx)
    with begin() as tx:
        return work(tx)


class ShardWriter:
    """Executes work in transactions on one shard; one thread does so for all that wait."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Transaction]]) -> None:
        self._begin = begin
        self._waiting: list[_Request] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, once it is committed; raise what it raises, with none of its changes made.

        `work` may be called more than once, each time in a new transaction.
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
            # If this thread was interrupted, the threads of the remaining requests carry them out.
            with self._lock:
                self._waiting[:0] = [request for request in group if not request.done]

    def _together(self, group: list[_Request]) -> bool:
        """Carry out all requests in one transaction; return False if one of them failed, so that none was done."""
        answers: list[Any] = []
        try:
            with self._begin() as tx:
                answers += (request.carry_out(tx) for request in group)
        except BaseException as error:
            # An interrupted commit may have succeeded, so nothing is repeated.
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
        try:
            request.answer = repeated(self._begin, request.carry_out)
        except BaseException as error:
            request.error = error
        request.done = True


# ---- Usage of projects while their work is admitted

#: Number of projects whose usage is remembered.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class _Counted:
    """Usage of a project when it was counted, plus all that was admitted since: an upper bound of its usage."""

    #: How many times the limits of the project had been locked by then.
    number: int
    used: dict[Resource, int]


class Projects:
    """Limits and usage of the projects whose work is admitted, by one transaction at a time.

    The usage of a project is counted at first. It is counted again if another process has admitted work of the project,
    or if its limits might be exceeded, because it is not known which work has ended since.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: dict[str, _Counted] = {}

    @contextmanager
    def admitting(self) -> Iterator[SqlTransaction]:
        """Begin a transaction that admits requests; the usage is remembered once it is committed."""
        self._limits: dict[str, QuotaLimits] = {}
        self._numbers: dict[str, int] = {}
        self._used: dict[str, dict[Resource, int]] = {}
        #: Projects for which the known usage is only an upper bound.
        self._at_most: set[str] = set()
        with self._store.admission() as tx:
            self._tx = tx
            yield tx
        if len(self._counted) > REMEMBERED:
            self._counted.clear()
        self._counted |= {name: _Counted(self._numbers[name], used) for name, used in self._used.items()}

    def lock_limits(self, project_id: str) -> QuotaLimits:
        """Return the limits of a project, which is locked until the transaction ends."""
        if project_id not in self._limits:
            self._limits[project_id], number = lock_limits(self._tx.connection, project_id)
            self._numbers[project_id] = number
            counted = self._counted.get(project_id)
            if counted is not None and counted.number == number - 1:
                self._used[project_id] = dict(counted.used)
                self._at_most.add(project_id)
        return self._limits[project_id]

    def used(self, project_id: str, requested: Amounts, limits: QuotaLimits) -> Amounts:
        """Return an upper bound of a project's usage, or the exact usage if the bound would exceed the limits."""
        known = self._used.setdefault(project_id, {})
        is_known = known.keys() >= set(requested)
        if not is_known or (project_id in self._at_most and limits.exceeded(known, requested)):
            self._tx.flush()  # so that work that was just admitted is counted
            known |= used(self._tx.connection, project_id, {*known, *requested})
            self._at_most.discard(project_id)
        return known

    def admitted(self, project_id: str, amounts: Amounts) -> None:
        """Add the amounts of an admitted request to the usage of its project."""
        known = self._used.get(project_id, {})
        for resource, amount in amounts.items():
            known[resource] += amount
