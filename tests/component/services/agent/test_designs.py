"""Designs on an agent, which loads them by permission of the scheduler: one agent with the real simulated driver."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.model.exceptions import BitstreamRefused
from fpga_pool.model.messages.agents import JobFinished
from fpga_pool.model.messages.work import DesignAnswer, DesignGrant
from fpga_pool.model.objects.bitstreams import DesignManifest
from fpga_pool.model.values import changed
from fpga_pool.rpc.transport import NO_ANSWER

FUNCTION = "mine.0123abcd"
BITSTREAM = b"a partial bitstream"
SHA256 = hashlib.sha256(BITSTREAM).hexdigest()
MANIFEST = DesignManifest(name="mine", board="fast", kind="small", io_bps=1e6, b_s_per_byte=1e-9, simulates="sha256")


@pytest.fixture
def bench(bench, key):
    """Return the bench with a scheduler that grants the loading of designs, and records the requests in `asked`."""
    scheduler = bench.scheduler
    scheduler.asked, scheduler.refuses, scheduler.alter = [], [], lambda answer: answer

    def load_design(host, agent_id, function, nonce, cached):
        scheduler.asked.append(cached)
        if scheduler.refuses:
            raise scheduler.refuses[0]
        grant = DesignGrant(nonce=nonce, host=host, function=function, manifest=MANIFEST, sha256=SHA256)
        content = b"" if cached == SHA256 else BITSTREAM
        return scheduler.alter(DesignAnswer(grant=grant, signature=key.sign(grant.signed()), bitstream=content))

    scheduler.load_design = load_design
    return bench


def test_a_design_is_fetched_once_and_computes_what_it_simulates(bench, until):
    bench.assign("j", function=FUNCTION)
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])
    bench.assign("k", function="sha256")
    until(lambda: bench.told("k")[-1:] == ["JobFinished"])
    results = {one.job: one.result_sha256 for one in bench.scheduler.reports if isinstance(one, JobFinished)}
    assert results["j"] == results["k"]
    # The design is loaded again. The scheduler is asked again, but does not send the bitstream that the host has.
    bench.assign("l", function=FUNCTION)
    until(lambda: bench.told("l")[-1:] == ["JobFinished"])
    assert bench.scheduler.asked == ["", SHA256]


def altered(**fields):
    return lambda answer: changed(answer, grant=changed(answer.grant, **fields))


@pytest.mark.parametrize(
    ("alter", "complaint"),
    [
        (lambda answer: changed(answer, bitstream=b"another one"), "its digest is not the one that is approved"),
        (altered(sha256="ab" * 32), "not signed by a scheduler"),
        (altered(nonce="of an earlier load"), "for another load"),
        (altered(host="h1"), "for another load"),
        (altered(manifest=changed(MANIFEST, simulates="aes")), "not signed by a scheduler"),
        (
            lambda answer: changed(answer, signature=Ed25519PrivateKey.generate().sign(answer.grant.signed())),
            "not signed by a scheduler",
        ),
    ],
)
def test_what_the_scheduler_has_not_signed_for_this_load_is_not_loaded(bench, until, alter, complaint):
    bench.scheduler.alter = alter
    bench.assign("j", function=FUNCTION)
    until(lambda: bench.failure("j") is not None)
    failure = bench.failure("j")
    assert (failure.code, failure.retryable) == ("fpga_pool.bitstream_refused", False)
    assert complaint in failure.message
    assert bench.state() == "EMPTY"


def test_a_design_for_another_kind_of_slots_is_not_loaded(bench, until, key):
    def alter(answer):
        grant = changed(answer.grant, manifest=changed(MANIFEST, kind="large"))
        return changed(answer, grant=grant, signature=key.sign(grant.signed()))

    bench.scheduler.alter = alter
    bench.assign("j", function=FUNCTION)
    until(lambda: bench.failure("j") is not None)
    assert "region_kind is 'large', expected 'small'" in bench.failure("j").message


def test_a_bitstream_that_was_altered_on_the_host_is_fetched_again(bench, until):
    bench.assign("j", function=FUNCTION)
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])
    (bench.settings.state_dir / "designs" / f"{FUNCTION}.bit").write_bytes(b"altered")
    bench.assign("k", function="sha256")
    until(lambda: bench.told("k")[-1:] == ["JobFinished"])
    bench.assign("l", function=FUNCTION)
    until(lambda: bench.told("l")[-1:] == ["JobFinished"])
    assert bench.scheduler.asked[1] == hashlib.sha256(b"altered").hexdigest()


def test_what_is_revoked_is_not_loaded_and_not_kept(bench, until):
    bench.assign("j", function=FUNCTION)
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])
    bench.assign("k", function="sha256")
    until(lambda: bench.told("k")[-1:] == ["JobFinished"])
    bench.scheduler.refuses = [BitstreamRefused(f"bitstream of {FUNCTION}: its design is REVOKED, not APPROVED")]
    bench.assign("l", function=FUNCTION)
    until(lambda: bench.failure("l") is not None)
    assert "REVOKED" in bench.failure("l").message
    assert list((bench.settings.state_dir / "designs").iterdir()) == []


def test_a_slot_waits_for_a_scheduler_that_gives_leave_and_has_not_failed(bench, until):
    bench.scheduler.refuses = [NO_ANSWER[0]("no reply")]
    bench.assign("j", function=FUNCTION)
    until(lambda: len(bench.scheduler.asked) >= 2)
    assert (bench.state(), bench.failure("j")) == ("LOADING", None)
    bench.scheduler.refuses = []
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])


@pytest.mark.parametrize("name", ["../secret.0123abcd", "mine.0123abcd/../x", "mine."])
def test_a_name_that_leads_elsewhere_is_refused_and_no_scheduler_is_asked(bench, until, name):
    bench.assign("j", function=name)
    until(lambda: bench.failure("j") is not None)
    assert "is not a valid name" in bench.failure("j").message
    assert bench.scheduler.asked == []


def test_only_the_bitstreams_that_were_used_last_are_kept(bench, until, monkeypatch):
    monkeypatch.setattr("fpga_pool.services.agent.designs.KEPT", 1)
    for number, function in enumerate(("mine.00000001", "mine.00000002")):
        bench.assign(f"j{number}", function=function)
        until(lambda number=number: bench.told(f"j{number}")[-1:] == ["JobFinished"])
    assert [path.name for path in (bench.settings.state_dir / "designs").iterdir()] == ["mine.00000002.bit"]
