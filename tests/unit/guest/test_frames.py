"""Messages on a channel that arrive in pieces of any size, broken off or invalid."""

import json

import pytest

from fpga_pool.guest.frames import CHUNK_BYTES, LINE_BYTES, Lines, decode, encode

FIRST = {"id": "a", "op": "data", "data": bytes(range(256))}
SECOND = {"id": "b", "op": "end", "sha256": "00"}


def test_messages_arrive_as_they_were_sent_in_whatever_pieces():
    wire = encode(FIRST) + encode(SECOND)
    for size in (1, 7, len(wire)):
        lines = Lines()
        found = [message for i in range(0, len(wire), size) for message in lines.feed(wire[i : i + size])]
        assert found == [FIRST, SECOND]


def test_a_message_that_was_broken_off_does_not_spoil_the_next():
    lines = Lines()
    assert lines.feed(encode(FIRST)[:50]) == []
    assert lines.feed(encode(SECOND)) == [SECOND]


def test_a_line_that_is_too_long_is_skipped_in_little_memory():
    lines = Lines()
    for _ in range(100):
        assert lines.feed(b"x" * LINE_BYTES) == []
        assert len(lines._rest) <= LINE_BYTES
    assert lines.feed(b"the rest of it" + encode(SECOND)) == [SECOND]


def test_the_largest_chunk_fits_into_a_line():
    assert len(encode({"id": "i" * 36, "op": "data", "data": bytes(CHUNK_BYTES)})) < LINE_BYTES


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"no json",
        b"[]",
        b'{"op": "run"}',
        b'{"id": 1, "op": "run"}',
        b'{"id": "a", "op": "data", "data": "!"}',
        b'{"id": "a", "op": "data", "data": 1}',
        b"[" * 100_000,
    ],
    ids=range(9),
)
def test_what_is_no_message_is_skipped(line):
    assert decode(line) is None


def test_a_message_is_one_line_of_json():
    assert json.loads(encode(SECOND)) == SECOND
    assert encode(SECOND).strip().count(b"\n") == 0
