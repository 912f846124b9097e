import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.transfer import frames

EXAMPLES = [
    frames.Hello("token"), frames.Accept(7), frames.Trailer("ab" * 32), frames.Staged(9), frames.Result(1, "cd" * 32),
    frames.ResultReceived(), frames.Failed("code", "why"), frames.Refuse("busy", "why"), frames.KeepAlive(),
]  # fmt: skip


def split(message):
    header = frames.decode_header(message[: frames.HEADER_BYTES])
    return header, message[frames.HEADER_BYTES :]


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: frame.type)
def test_every_frame_is_read_as_it_was_written(frame):
    header, body = split(frames.encode(frame))
    assert (header.is_data, header.length) == (False, len(body))
    assert frames.decode(body) == frame


def test_wire_form_of_a_frame():
    """Kind, length in four bytes with the most significant first, body: 258 = 0x0102."""
    body = b'{"version": 1, "type": "accept", "offset_bytes": 7, "shaped": false}'
    assert len(body) == 68
    assert frames.encode(frames.Accept(7)) == b"J\0\0\0\x44" + body
    assert frames.encode_data_header(258) == b"D\0\0\x01\x02"


def test_hello_without_a_token_is_read_so_that_it_can_be_refused_for_that():
    assert frames.decode(b'{"version": 1, "type": "hello"}') == frames.Hello("")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("x", "not JSON"),
        ("[" * 60_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"type": "hello"}', "unsupported version; expected 1"),
        ('{"version": 2, "type": "hello"}', "unsupported version; expected 1"),
        ('{"version": true, "type": "hello"}', "unsupported version; expected 1"),
        ('{"version": 1, "type": "good-bye"}', "unknown type"),
        ('{"version": 1, "type": ["hello"]}', "unknown type"),
        ('{"version": 1, "type": "hello", "token": 1}', "hello: token: expected str"),
        ('{"version": 1, "type": "hello", "more": 1}', "unknown field"),
        ('{"version": 1, "type": "accept"}', "offset_bytes is missing"),
        ('{"version": 1, "type": "accept", "offset_bytes": -1}', "out of range"),
        ('{"version": 1, "type": "accept", "offset_bytes": 9223372036854775808}', "out of range"),
        ('{"version": 1, "type": "accept", "offset_bytes": 1.0}', "expected int"),
        ('{"version": 1, "type": "accept", "offset_bytes": NaN}', "expected int"),
        ('{"version": 1, "type": "accept", "offset_bytes": true}', "expected int"),
        ('{"version": 1, "type": "trailer", "sha256": "AB"}', "64 hexadecimal digits"),
    ],
)
def test_anything_unexpected_is_refused(document, message):
    with pytest.raises(frames.BadFrame, match=message):
        frames.decode(document.encode())


@pytest.mark.parametrize("header", [b"X\0\0\0\x01", b"J\0\0\0\0", b"D\0\0\0\0", b"J\0\x01\0\x01", b"D\0\x08\0\x01"])
def test_header_of_unknown_kind_or_absurd_length(header):
    """The limits are 64 KiB = 0x10000 for control frames and 512 KiB = 0x80000 for data frames."""
    with pytest.raises(frames.BadFrame):
        frames.decode_header(header)


def test_longest_bodies_are_accepted():
    assert frames.decode_header(b"J\0\x01\0\0").length == 65_536
    assert frames.decode_header(b"D\0\x04\0\0").length == 262_144


def test_frame_that_is_too_long_is_not_written():
    with pytest.raises(frames.BadFrame, match="at most 65536"):
        frames.encode(frames.Hello("x" * 65_536))


def test_error_repeats_no_content():
    with pytest.raises(frames.BadFrame) as caught:
        frames.decode(b'{"version": 1, "type": "accept", "offset_bytes": "s3cret", "t0ken": 1}')
    assert "s3cret" not in str(caught.value)
    assert "t0ken" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_refused(body):
    with contextlib.suppress(frames.BadFrame):
        frames.decode(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(EXAMPLES), JSON, st.data())
def test_any_altered_field_is_a_frame_or_refused(frame, value, data):
    document = json.loads(split(frames.encode(frame))[1])
    document[data.draw(st.sampled_from(sorted(document)))] = value
    with contextlib.suppress(frames.BadFrame):
        frames.decode(json.dumps(document).encode())
