"""Pipelines with real processes: results move between agents, and no kill loses or changes one."""

import hashlib
import random
import ssl
import threading
import time

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fpga_pool.client import RunSettings, Subtask
from fpga_pool.model.objects.pool import BatchState, JobState
from fpga_pool.services.audit import audit
from fpga_pool.store import Store
from support.waiting import wait_until

KEY, COUNTER = bytes(range(32)), bytes(16)
#: Settings of a client that tolerates a pool that does not respond for a while.
PATIENT = RunSettings(patience_s=120.0, timeout_s=240.0)
#: A computation takes a quarter of a second, so that kills hit each stage.
SLOW = {"driver_simulated": {"board": "demo"}}


def encrypted(data):
    return Cipher(algorithms.AES(KEY), modes.CTR(COUNTER)).encryptor().update(data)


def digest(data):
    return f"{hashlib.sha256(data).hexdigest()}\n".encode()


def three_stages(data, requester):
    """Return two encryptions, a digest of both, a digest of that; and the final result.  Inputs fill no journal."""
    return [
        Subtask("left", "aes", data, requester, KEY + COUNTER),
        Subtask("right", "aes", data[::-1], requester, KEY + COUNTER),
        Subtask("both", "sha256", after=("left", "right")),
        Subtask("last", "sha256", after=("both",)),
    ], digest(digest(encrypted(data) + encrypted(data[::-1])))


class Stream:
    """Consecutive pipelines, until told to end."""

    def __init__(self, client, requester, directory, seed):
        self._client, self._requester, self._directory = client, requester, directory
        self._rng = random.Random(seed)
        self._ending = threading.Event()
        self.wrong = []
        self.ended = 0
        #: Set while some results of the current pipeline exist, which others have still to read.
        self.between = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ending.is_set():
            subtasks, expected = three_stages(self._rng.randbytes(300_000), self._requester)
            try:
                result = self._client.run_pipeline(
                    subtasks, output_dir=self._directory, settings=PATIENT, on_progress=self._note
                )
                if not result.ok or result.jobs[3].result.read_bytes() != expected:
                    self.wrong.append([(job.name, job.state, job.reason) for job in result.jobs])
            except Exception as error:
                self.wrong.append(error)
            self.ended += 1

    def _note(self, progress):
        complete = progress.states.get(JobState.RESULT_HELD, 0) + progress.states.get(JobState.COMPLETED, 0)
        (self.between.set if 0 < complete < progress.jobs else self.between.clear)()

    def end(self):
        self._ending.set()
        self._thread.join(PATIENT.timeout_s)
        assert not self._thread.is_alive()


def require_sound(database_url):
    store = Store(database_url)
    try:
        wait_until(lambda: audit(store, idle=True) == [], "a sound pool at rest")
    finally:
        store.close()


def test_three_stages_in_an_embedded_pool(pool, tmp_path):
    subtasks, expected = three_stages(random.Random(1).randbytes(300_000), "node-1")
    result = pool.client().run_pipeline(subtasks, output_dir=tmp_path, name="three")
    assert result.ok
    assert result.batch.state is BatchState.COMPLETED
    assert result.jobs[3].result.read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["last.sha256"]


def test_results_are_copied_over_tls_where_hosts_trust_each_others_authority(make_pool, certificate, tmp_path):
    cert, key = certificate
    tls = {"data_tls_cert": cert, "data_tls_key": key, "data_tls_ca": cert}
    pool = make_pool({**SLOW, "standalone": {"hosts": 2}, "agent": tls})
    names = [f"part-{number}" for number in range(16)]  # several hosts compute concurrently
    data = {name: random.Random(name).randbytes(300_000) for name in names}
    subtasks = [Subtask(name, "aes", data[name], "requester-1", KEY + COUNTER) for name in names]
    subtasks.append(Subtask("all", "sha256", after=names))
    trusted = ssl.create_default_context(cafile=cert)
    result = pool.client().run_pipeline(subtasks, output_dir=tmp_path, settings=PATIENT, ssl_context=trusted)
    assert result.ok, [(job.name, job.state, job.reason) for job in result.jobs]
    assert result.jobs[-1].result.read_bytes() == digest(b"".join(encrypted(data[name]) for name in names))
    assert len({job.host for job in pool.client().jobs(result.batch.uuid)}) == 2


@pytest.mark.long
def test_an_embedded_pool_goes_on_with_its_pipelines_after_a_kill(make_pool, tmp_path):
    pool = make_pool(SLOW)
    stream = Stream(pool.client(), "node-1", tmp_path, 2)
    assert stream.between.wait(180)
    pool.kill()
    pool.start()
    stream.end()
    assert stream.wrong == []


@pytest.mark.long
def test_results_are_right_through_a_kill_of_every_process_in_turn(deployment, rabbitmq, mariadb_url, tmp_path):
    pool = deployment(rabbitmq.url, mariadb_url, agents=3, options=SLOW)
    streams = [Stream(pool.client(), f"node-{number}", tmp_path / str(number), number) for number in (1, 2)]
    for name in pool.names:
        assert all(stream.between.wait(180) for stream in streams)
        pool.restart(name)  # kills it first, with SIGKILL
        pool.wait_for_hosts(pool.hosts)
        before = [stream.ended for stream in streams]
        until_s = time.monotonic() + PATIENT.timeout_s
        while any(stream.ended <= ended for stream, ended in zip(streams, before, strict=True)):
            assert time.monotonic() < until_s, f"no pipeline has ended since the kill of {name}"
            time.sleep(0.1)
    for stream in streams:
        stream.end()
    assert [stream.wrong for stream in streams] == [[], []]
    require_sound(mariadb_url)
