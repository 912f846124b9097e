"""Requests carried out together: as many as wait share one transaction, one sync to disk, and what projects use."""

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

#: Requests in one transaction at most: while it lasts no other scheduler can change the shard.
GROUP = 64
#: How often one is tried that other writers were in the way of.
ATTEMPTS = 5


@dataclass(slots=True)
class _Request:
    work: Callable[[Transaction], Any]
    #: That of the thread that waits for it: another one may carry it out.
    cause: Cause = field(default_factory=causing_request)
    done: bool = False
    answer: Any = None
    error: BaseException | None = None

    def carry_out(self, tx: Transaction) -> Any:
        """Return the answer; what is changed has this request as its cause."""
        tx.cause = self.cause
        return self.work(tx)


def repeated(begin: Callable[[], AbstractContextManager[TxT]], work: Callable[[TxT], T]) -> T:
    """Return what `work` returns in a transaction that is committed; repeat it where other writers are in the way."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(Contended), begin() as tx:
            return work(tx)
    with begin() as tx:
        return work(tx)


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
        try:
            request.answer = repeated(self._begin, request.carry_out)
        except BaseException as error:
            request.error = error
        request.done = True


# ---- What projects use while their work is admitted

#: Projects of which that is remembered.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a project used when that was counted, with all that was admitted since: it uses no more than that."""

    #: How often the limits of the project had been locked by then.
    number: int
    used: dict[Resource, int]


class Projects:
    """Limits and use of the projects whose work is admitted, by one transaction at a time.

    The use of a project is counted at first, and again where another process has admitted work of it, or where its
    limits might be exceeded: what has ended since is not known.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: dict[str, _Counted] = {}

    @contextmanager
    def admitting(self) -> Iterator[SqlTransaction]:
        """Begin to admit requests together; they are remembered once that is committed."""
        self._limits: dict[str, QuotaLimits] = {}
        self._numbers: dict[str, int] = {}
        self._used: dict[str, dict[Resource, int]] = {}
        #: Projects whose use may be less.
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
        """Return what a project uses at most, what was admitted included; just that where it is too much."""
        known = self._used.setdefault(project_id, {})
        is_known = known.keys() >= set(requested)
        if not is_known or (project_id in self._at_most and limits.exceeded(known, requested)):
            self._tx.flush()  # what was admitted before counts
            known |= used(self._tx.connection, project_id, {*known, *requested})
            self._at_most.discard(project_id)
        return known

    def admitted(self, project_id: str, amounts: Amounts) -> None:
        """Count what was stored for a request."""
        known = self._used.get(project_id, {})
        for resource, amount in amounts.items():
            known[resource] += amount
