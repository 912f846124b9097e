"""The pool in a few lines of Python."""

import ssl
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict, Unpack

from fpga_pool.client.api import PoolApi
from fpga_pool.client.inputs import JobSpec, Source, read_inputs
from fpga_pool.client.outcome import BatchProgress, BatchResult
from fpga_pool.client.runner import BatchRunner, RunSettings


class RunOptions(TypedDict, total=False):
    """What may be said about a run; `Client.runner` tells of each."""

    output_dir: str | Path | None
    name: str
    policy: str
    on_progress: Callable[[BatchProgress], None]
    settings: RunSettings | None
    ssl_context: ssl.SSLContext | None


class Client(PoolApi):
    """Everything the pool offers: the calls of its API, and whole batches.

    ::

        client = Client()
        batch = client.run("sha256", ["a.bin", "b.bin"], requester="node-1")
        for job in batch.jobs:
            print(job.name, job.result.read_text())
    """

    def run(
        self,
        function: str,
        files: Iterable[Source],
        *,
        requester: str,
        header: bytes = b"",
        **options: Unpack[RunOptions],
    ) -> BatchResult:
        """Run one job for each file, and return when all have ended and their results are on disk.

        `header` is sent before each file (aes reads its key and counter block there).  `requester` is the host of the
        pool that this runs on.  The other options are those of `runner`.
        """
        return self.run_jobs((JobSpec(function, file, requester, header) for file in files), **options)

    def run_jobs(self, jobs: Iterable[JobSpec], **options: Unpack[RunOptions]) -> BatchResult:
        """Run jobs of any functions and requesters as one batch; see `run`."""
        return self.runner(jobs, **options).run()

    def runner(
        self,
        jobs: Iterable[JobSpec],
        *,
        output_dir: str | Path | None = None,
        name: str = "",
        policy: str = "",
        on_progress: Callable[[BatchProgress], None] = lambda _: None,
        settings: RunSettings | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> BatchRunner:
        """Return what will run these jobs as one batch.

        Without an `output_dir` the results are in a new temporary directory, which is the caller's to remove.
        `on_progress` is called in the caller's thread, several times a second.
        """
        return BatchRunner(
            self,
            read_inputs(jobs),
            output_dir=Path(output_dir or tempfile.mkdtemp(prefix="fpga-pool-")),
            name=name,
            policy=policy,
            settings=settings,
            ssl_context=ssl_context,
            on_progress=on_progress,
        )
