"""Receipts of clients for results whose delivery their agents did not notice."""

from dataclasses import replace

import pytest

from fpga_pool.model.messages.requests import Receipt
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.batch.admission import confirm_results

#: The digest of results that the agents of these tests report.
DIGEST = "ab"


@pytest.fixture
def held(pool):
    """A job whose result is held."""
    pool.create("aes")
    (job,) = pool.plan()
    pool.bring(job.uuid, JobState.RESULT_HELD)
    pool.sent()
    return pool.job(job.uuid)


def confirm(pool, job, sha256=DIGEST):
    with pool.tx() as tx:
        confirm_results(tx, [Receipt(job=job.uuid, sha256=sha256)], pool.now_s)
    return pool.job(job.uuid)


def test_a_result_that_is_held_is_released_by_its_agent(pool, held):
    assert confirm(pool, held).state is JobState.COMPLETED
    assert pool.actions() == [(held.slot, "ReleaseJob", held.uuid)]


def test_the_agent_of_a_lost_host_releases_it_when_it_is_back(pool, held):
    with pool.tx() as tx:
        tx.save(replace(tx.host("h0"), alive=False))
    assert confirm(pool, held).state is JobState.COMPLETED
    assert pool.actions() == []
    still_held = pool.heartbeat(jobs=[(held.uuid, held.attempt, held.slot)])
    assert (held.uuid, "held by h0, though it has ended or moved elsewhere") in pool.heard(still_held)
    assert pool.actions() == [(held.slot, "ReleaseJob", held.uuid)]


def test_a_receipt_that_is_repeated_changes_nothing(pool, held):
    once = confirm(pool, held)
    pool.sent()
    assert confirm(pool, held) == once
    assert pool.actions() == []


def test_what_the_agent_reports_of_the_delivery_afterwards_is_void(pool, held):
    confirmed = confirm(pool, held)
    assert pool.delivered(held.uuid) == [f"ResultDelivered: job {held.uuid} is COMPLETED"]
    assert pool.job(held.uuid) == confirmed


def test_a_receipt_of_another_result_releases_nothing(pool, held):
    assert confirm(pool, held, sha256="cd") == held


def test_a_receipt_of_what_was_not_computed_yet_changes_nothing(pool):
    pool.create("aes")
    (job,) = pool.plan()
    assert confirm(pool, job) == pool.job(job.uuid)
