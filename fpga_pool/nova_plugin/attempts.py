"""Further attempts on a host: Nova claims only the first allocation candidate of each host that passes.

Where many requests arrive at once, the first candidates of a few hosts are soon taken while others of the same hosts
are free.  So the filter lists such a host again, with one of its other candidates; a weigher puts these attempts after
all hosts, so that alternates are other hosts where there are any.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest
from typing import Any

from fpga_pool.nova_plugin.candidates import Candidate, slots_of

#: Hosts and further attempts together: where so many hosts pass, there is no need for more.
_ENOUGH = 64


class FurtherAttempt:
    """A host in every respect, but with allocation candidates of its own."""

    def __init__(self, host: Any, candidates: Sequence[Any]) -> None:
        """`host` is Nova's HostState."""
        self.__dict__["_host"] = host
        self.__dict__["allocation_candidates"] = list(candidates)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_host"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "allocation_candidates":
            self.__dict__[name] = value
        else:
            setattr(self._host, name, value)

    def __repr__(self) -> str:
        return f"{self._host!r} (further attempt)"


def further_attempts(hosts: Sequence[Any]) -> list[FurtherAttempt]:
    """Return further attempts on hosts whose candidates are in order, the next best of each host first."""
    if len(hosts) >= _ENOUGH:
        return []
    by_host = ([FurtherAttempt(host, [other]) for other in _others(host.allocation_candidates)] for host in hosts)
    attempts = (attempt for attempt in chain.from_iterable(zip_longest(*by_host)) if attempt is not None)
    return list(islice(attempts, _ENOUGH - len(hosts)))


def _others(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates that take other slots than those before them; the same slots would be refused again."""
    seen: set[frozenset[tuple[str, int]]] = set()
    for candidate in candidates:
        slots = frozenset(slots_of(candidate))
        if seen and slots not in seen:
            yield candidate
        seen.add(slots)
