"""Files of jobs on an agent's disk: inputs and results, in files or, where they are small, in the journal."""

import os
import re
from collections.abc import Container, Sequence
from pathlib import Path

from fpga_pool.model.agent.objects import HeldJob
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.services.agent.journal import Journal

#: Small inputs that are kept in memory: 16 MiB at most.
RECENT = 256

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


class JobFiles:
    """Inputs and results of one agent's jobs.  Changes are made under the lock of its jobs."""

    def __init__(self, journal: Journal, state_dir: Path) -> None:
        self._journal = journal
        self._inputs = state_dir / "inputs"
        self._results = state_dir / "results"
        #: The newest small inputs, which are in the journal as well, until their slots take them.
        self._recent: dict[str, bytes] = {}

    def make_directories(self) -> None:
        """Make what the files are in."""
        for directory in (self._inputs, self._results):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def input_path(self, uuid: str) -> Path:
        """Where a job's complete input is."""
        return self._inputs / _checked(uuid)

    def partial_path(self, uuid: str) -> Path:
        """Where a job's input is until it is complete."""
        return self._inputs / f"{_checked(uuid)}.part"

    def result_path(self, uuid: str) -> Path:
        """Where a job's result is."""
        return self._results / _checked(uuid)

    def gathered_path(self, uuid: str, attempt: int) -> Path:
        """Where the input of an attempt grows while it is gathered from results of other jobs."""
        return self._inputs / f"{_checked(uuid)}.{attempt}.part"

    def sink_path(self, uuid: str, attempt: int) -> Path:
        """Where an attempt's result grows; an older attempt may still compute when a newer one begins."""
        return self._results / f"{_checked(uuid)}.{attempt}"

    def small_result(self, uuid: str) -> bytes | None:
        """Return a job's held result if it is a small one; else it is in a file."""
        return self._journal.result(uuid)

    def small_input(self, uuid: str) -> bytes | None:
        """Return a job's input if it is a small one; else it is in a file."""
        recent = self._recent.pop(uuid, None)
        return self._journal.input(uuid) if recent is None else recent

    def remember(self, inputs: Sequence[tuple[str, bytes]]) -> None:
        """Keep small inputs, which are in the journal, in memory too: the newest of all."""
        self._recent.update(inputs[:RECENT])
        for uuid in list(self._recent)[:-RECENT]:
            self._recent.pop(uuid, None)

    def has_input(self, uuid: str) -> bool:
        """Return whether a job's complete input is here."""
        return self.input_path(uuid).exists() or self._journal.input(uuid) is not None

    def has_result(self, uuid: str) -> bool:
        """Return whether a job's result is here."""
        return self.result_path(uuid).exists() or self._journal.result(uuid) is not None

    def received_bytes(self, uuid: str) -> int:
        """Return how much of an input that is not complete has come."""
        try:
            return self.partial_path(uuid).stat().st_size
        except FileNotFoundError:
            return 0

    def name_results(self, jobs: Sequence[HeldJob]) -> None:
        """Give large results the names under which they are found."""
        for job in jobs:
            self.sink_path(job.uuid, job.attempt).replace(self.result_path(job.uuid))
        if jobs:
            _sync_directory(self._results)

    def delete(self, uuid: str) -> None:
        """Remove what a job left on disk."""
        for path in (self.input_path(uuid), self.partial_path(uuid), self.result_path(uuid)):
            path.unlink(missing_ok=True)

    def delete_strays(self, held: Container[str]) -> None:
        """Remove files of unknown jobs, and incomplete results: these are computed again."""
        strays = [path for path in self._inputs.iterdir() if path.name.removesuffix(".part") not in held]
        strays += [path for path in self._results.iterdir() if path.name not in held]
        for path in strays:
            path.unlink()


def _checked(uuid: str) -> str:
    """Return the id of a job; InvalidInput unless it is the name of a file in the directory that it is put into.

    Messages are read by `model.fields.Id`; this is for what else may call, for the agent deletes what is named here.
    """
    if not _PLAIN_NAME.fullmatch(uuid):
        raise InvalidInput(f"job {uuid[:60]!r}: expected letters, digits and hyphens")
    return uuid


def place_file(source: Path, place: Path) -> None:
    """Give a file, whose content is durable, another name, durably."""
    source.replace(place)
    _sync_directory(place.parent)


def _sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
