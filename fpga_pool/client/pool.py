"""The pool in a few lines of Python."""

import ssl
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict, Unpack

from fpga_pool.client.api import PoolApi
from fpga_pool.client.inputs import Source, read_sources
from fpga_pool.client.outcome import BatchProgress, BatchResult
from fpga_pool.client.runner import BatchRunner, RunSettings


class RunOptions(TypedDict, total=False):
    """What may be said about a run; `Client.runner` tells of each."""

    header: bytes
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
        self, function: str, files: Iterable[Source], *, requester: str, **options: Unpack[RunOptions]
    ) -> BatchResult:
        """Run one job for each file, and return when all have ended and their results are on disk; see `runner`."""
        return self.runner(function, files, requester=requester, **options).run()

    def runner(
        self,
        function: str,
        files: Iterable[Source],
        *,
        requester: str,
        header: bytes = b"",
        output_dir: str | Path | None = None,
        name: str = "",
        policy: str = "",
        on_progress: Callable[[BatchProgress], None] = lambda _: None,
        settings: RunSettings | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> BatchRunner:
        """Return what will run one job for each file.

        `header` is sent before each file (aes reads its key and counter block there).  `requester` is the host of the
        pool that this runs on.  Without an `output_dir` the results are in a new temporary directory, which is the
        caller's to remove.  `on_progress` is called in the caller's thread, several times a second.
        """
        return BatchRunner(
            self,
            function,
            read_sources(files, header),
            requester=requester,
            output_dir=Path(output_dir or tempfile.mkdtemp(prefix="fpga-pool-")),
            name=name,
            policy=policy,
            settings=settings,
            ssl_context=ssl_context,
            on_progress=on_progress,
        )
