"""Results are returned end to end: planned, sent at the planned rates, and correct."""

import os

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

FILES, FILE_BYTES = 4, 400_000


@pytest.fixture
def inputs(tmp_path):
    """Inputs of aes: key, first counter block, data."""
    paths = [tmp_path / f"input-{number}" for number in range(FILES)]
    for path in paths:
        path.write_bytes(os.urandom(48 + FILE_BYTES))
    return paths


def test_results_of_a_batch_are_back_no_sooner_than_any_plan_allows(make_pool, inputs):
    # A result of 400 kB takes 0.4 s over an egress of 8 Mbit/s.
    pool = make_pool({"scheduler": {"plan_results": True}, "standalone": {"egress_mbps": 8, "ingress_mbps": 100}})
    client = pool.client()
    batch = client.run("aes", inputs, requester="requester-1")
    for path, job in zip(inputs, batch.jobs, strict=True):
        key, counter, data = path.read_bytes()[:32], path.read_bytes()[32:48], path.read_bytes()[48:]
        assert job.result.read_bytes() == Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(data)
    stored = client.batch(batch.batch.uuid)
    jobs = [outcome.job for outcome in batch.jobs]
    assert all(job.result_transfer for job in jobs)
    assert stored.planned_completion_s > stored.planned_makespan_s
    # From the recorded times: a paced result is delivered no sooner than its transfer time after the end of its job.
    for job in client.jobs(batch.batch.uuid):
        assert job.ended_at - job.finished_at >= 8 * FILE_BYTES / 8e6 * 0.99
    back_s = max(job.ended_at for job in client.jobs(batch.batch.uuid)) - stored.dispatched_at
    assert back_s >= stored.completion_bound_s
