"""What comes of a simulation of gangs, written while it comes about (doc/formats)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from fpga_pool.core.types import Ints
from fpga_pool.sim.gangs.trace import Trace
from fpga_pool.sim.replacing import replacing

_HEAD = "# format_version=1\n"
_BUFFER_BYTES = 1 << 20


class Files:
    """Writes a row for each gang that is done, and for each stretch and each gang that waits where they are wanted."""

    def __init__(
        self, trace: Trace, jobs: IO[str], stretches: IO[str] | None = None, waiting: IO[str] | None = None
    ) -> None:
        self._jobs, self._stretches, self._waiting = jobs, stretches, waiting
        self._name: list[int] = trace.job.tolist()
        self._rows = list(zip(trace.submit_s.tolist(), trace.width.tolist(), trace.run_s.tolist(), strict=True))
        jobs.write(f"{_HEAD}job,submit_s,start_s,finish_s,processors,run_s,migrations,kills,tier_swaps\n")
        if stretches is not None:
            stretches.write(f"{_HEAD}job,begin_s,end_s,tier,processors,rate\n")
        if waiting is not None:
            waiting.write(f"{_HEAD}job,submit_s,expected_s,why\n")

    def stretch(self, gang: int, begin_s: float, end_s: float, tier: str, processors: Ints, rate: float) -> None:
        """Write a stretch."""
        if self._stretches is not None:
            where = "+".join(map(str, processors.tolist()))
            self._stretches.write(f"{self._name[gang]},{begin_s!r},{end_s!r},{tier},{where},{rate!r}\n")

    def waits(self, gang: int, begin_s: float, why: str) -> None:
        """Write a gang that waits."""
        if self._waiting is not None:
            self._waiting.write(f"{self._name[gang]},{self._rows[gang][0]!r},{begin_s!r},{why}\n")

    def finished(self, gang: int, start_s: float, finish_s: float, migrations: int, kills: int, swaps: int) -> None:
        """Write a gang."""
        submit_s, width, run_s = self._rows[gang]
        self._jobs.write(
            f"{self._name[gang]},{submit_s!r},{start_s!r},{finish_s!r},{width},{run_s!r},{migrations},{kills},{swaps}\n"
        )


@contextmanager
def writing(
    trace: Trace, jobs: str | Path, stretches: str | Path | None, waiting: str | Path | None = None
) -> Iterator[Files]:
    """Give what writes the files; they are there, whole, when all has gone well."""
    with ExitStack() as stack:

        def opened(path: str | Path) -> IO[str]:
            place = stack.enter_context(replacing(path))
            return stack.enter_context(place.open("w", buffering=_BUFFER_BYTES, encoding="utf-8", newline=""))

        others = (None if path is None else opened(path) for path in (stretches, waiting))
        yield Files(trace, opened(jobs), *others)
