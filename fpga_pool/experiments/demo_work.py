"""The demonstration's work: files, the jobs over them, and what their results must be."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fpga_pool.client import JobSpec

#: Bytes of the AES key and counter block that the function `aes` reads before the data.
KEY_BYTES, COUNTER_BYTES = 32, 16
FUNCTIONS = ("sha256", "wordcount", "aes")

_WORDS = ("slot", "card", "host", "job", "batch", "plan", "lease", "region", "bitstream", "accelerator", "tenant")


@dataclass(frozen=True, slots=True)
class Work:
    """One job of the demonstration."""

    path: Path
    function: str
    requester: str
    header: bytes = b""

    def spec(self) -> JobSpec:
        """Return the job as the client library takes it."""
        return JobSpec(self.function, self.path, requester=self.requester, header=self.header)

    def expected(self) -> bytes:
        """Return the right result, computed here by other means than the pool's."""
        data = self.path.read_bytes()
        if self.function == "sha256":
            return hashlib.sha256(data).hexdigest().encode() + b"\n"
        if self.function == "wordcount":
            return b"%d\n" % len(data.split())
        key, counter = self.header[:KEY_BYTES], self.header[KEY_BYTES:]
        encryptor = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
        return encryptor.update(data) + encryptor.finalize()


def generate_files(directory: Path, count: int, mean_bytes: float, seed: int) -> list[Path]:
    """Write `count` text files whose sizes are exponential (makespan paper, section 5.2) around `mean_bytes`."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    paths = []
    for number, size in enumerate(rng.exponential(mean_bytes, count).astype(int) + 1):
        words = " ".join(rng.choice(_WORDS, 20_000)).encode() + b"\n"
        path = directory / f"text-{number:02d}"
        path.write_bytes((words * (int(size) // len(words) + 1))[: int(size)])
        paths.append(path)
    return paths


def make_work(files: Sequence[Path], requesters: Sequence[str]) -> list[Work]:
    """Return each function over each file; the requesters take turns, so that all of them send some of everything."""
    work: list[Work] = []
    for path in files:
        for function in FUNCTIONS:
            header = os.urandom(KEY_BYTES + COUNTER_BYTES) if function == "aes" else b""
            requester = requesters[(len(work) + len(work) // len(FUNCTIONS)) % len(requesters)]
            work.append(Work(path, function, requester, header))
    return work
