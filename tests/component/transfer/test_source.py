"""The source of a stream, which agrees with its token or not."""

import io

import pytest

from fpga_pool.transfer.tokens import source_of


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.1", "192.0.2.1:5"),
        ("::ffff:192.0.2.1", "192.0.2.1:5"),  # as shown by a socket for both address families
        ("2001:DB8:0::1", "2001:db8::1:5"),
        ("fe80::1%eth0", "fe80::1:5"),
    ],
)
def test_both_ends_call_a_source_the_same(address, source):
    assert source_of(address, 5) == source


def send(bench, source_or_none, **changes):
    """Send three bytes with a token of the given source, or of the true one; return the answer and the source."""
    accepted = []
    with bench.connect() as connection:
        source = source_or_none or source_of(connection.source_address, connection.source_port)
        token = bench.token(3, source=source, **changes)
        connection.send(token, io.BytesIO(b"abc"), 3, on_accept=accepted.append)
    return accepted[0].shaped, source


def test_the_agent_hears_of_a_stream_that_comes_from_the_source_of_its_token(bench):
    shaped, source = send(bench, None)
    assert shaped
    assert bench.agent.seen_sources == [("job-1", source)]


@pytest.mark.parametrize("claimed", ["192.0.2.7:40000", "127.0.0.1:1", "nonsense"])
def test_a_claim_of_another_ones_source_is_not_passed_on_and_the_client_is_told(bench, claimed):
    assert send(bench, claimed) == (False, claimed)
    assert bench.agent.seen_sources == []
    assert bench.agent.staged_inputs.keys() == {"job-1"}


def test_a_server_is_believed_its_own_address_where_another_one_is_seen_as_behind_nat(bench):
    assert send(bench, "10.0.0.7:40000", tap=True) == (True, "10.0.0.7:40000")
    assert bench.agent.seen_sources == [("job-1", "10.0.0.7:40000")]


def test_a_server_that_names_a_port_that_is_not_its_stream_s_is_held_by_what_is_seen(bench):
    shaped, claimed = send(bench, "127.0.0.1:1", tap=True)
    ((_, source),) = bench.agent.seen_sources
    assert shaped
    assert source.startswith("127.0.0.1:")
    assert source != claimed


def test_a_stream_that_nobody_holds_is_not_reported(bench):
    accepted = []
    with bench.connect() as connection:
        connection.send(bench.token(3), io.BytesIO(b"abc"), 3, on_accept=accepted.append)
    assert (accepted[0].shaped, bench.agent.seen_sources) == (False, [])
