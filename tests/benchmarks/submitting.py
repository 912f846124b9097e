"""A process of users who submit small jobs, batch after batch, and check every result.

    python submitting.py ENDPOINT JOBS_PER_BATCH USERS SECONDS DIRECTORY

Each user is a thread that submits its next batch when it has all results of the previous one.  Prints "ready" when all
users have completed one batch, and starts when it reads a line.  At the end it prints, as JSON, the number of completed
jobs, the time for all of them, and the time for each batch, in seconds.
"""

import hashlib
import json
import os
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path

from fpga_pool.client import Client, JobSpec

INPUT_BYTES = 1000


class User(threading.Thread):
    """One user."""

    def __init__(self, client, number, jobs, directory, go, until):
        super().__init__(daemon=True)
        self._client, self._jobs, self._directory = client, jobs, directory / f"user-{number}"
        self._go, self._until = go, until
        self.warm = threading.Event()
        self.ends_s, self.times_s = [], []

    def run(self):
        try:
            self._submit()
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # otherwise the other threads would continue

    def _submit(self):
        self._run_batch()
        self.warm.set()
        self._go.wait()
        while time.monotonic() < self._until[0]:
            began_s = time.monotonic()
            self._run_batch()
            self.ends_s.append(time.monotonic())
            self.times_s.append(self.ends_s[-1] - began_s)

    def _run_batch(self):
        inputs = [os.urandom(INPUT_BYTES) for _ in range(self._jobs)]
        work = [JobSpec("sha256", data, "requester-1") for data in inputs]
        result = self._client.run_jobs(work, output_dir=self._directory)
        for data, job in zip(inputs, result.jobs, strict=True):
            if job.result is None or job.result.read_text().strip() != hashlib.sha256(data).hexdigest():
                print(f"job {job.job.uuid} has no right result: {job.reason}", file=sys.stderr, flush=True)
                os._exit(1)
        shutil.rmtree(self._directory)


def main(endpoint, jobs, users, seconds, directory):
    go, until = threading.Event(), [0.0]
    with Client(endpoint) as client:
        all_of_them = [User(client, number, jobs, Path(directory), go, until) for number in range(users)]
        for user in all_of_them:
            user.start()
        for user in all_of_them:
            user.warm.wait()
        print("ready", flush=True)
        sys.stdin.readline()
        began_s = time.monotonic()
        until[0] = began_s + seconds
        go.set()
        for user in all_of_them:
            user.join()
    took_s = time.monotonic() - began_s
    batches_s = [batch_s for user in all_of_them for batch_s in user.times_s]
    print(json.dumps({"jobs": jobs * len(batches_s), "took_s": took_s, "batches_s": batches_s}), flush=True)
    sys.stdin.readline()  # the CPU time of this process is still to be read


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
