import base64
import hashlib
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.model.values import changed
from fpga_pool.transfer.tokens import TransferGrant, Verifier, sign

KEY = Ed25519PrivateKey.generate()
GRANT = TransferGrant(
    job="j", attempt=2, project_id="p", host="h", purpose="send", input_bytes=5, token_id="t", deadline_s=1000.5
)


def text(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def data(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def verified(token, *, host="h", now_s=0.0):
    return Verifier([KEY.public_key()], host).verify(token, now_s)


def reason_of(token, **named):
    with pytest.raises(TransferRefused) as caught:
        verified(token, **named)
    assert caught.value.__cause__ is None
    return caught.value.reason


def grants(count):
    return [changed(GRANT, token_id=f"t{number}") for number in range(count)]


def test_a_token_alone_is_the_grant_and_a_signature_of_its_hash():
    (token,) = sign([GRANT], KEY)
    payload, path, signature = token.split(".")
    assert path == ""
    KEY.public_key().verify(data(signature), b"fpga_pool.tokens.1" + hashlib.sha256(b"\0" + payload.encode()).digest())
    assert verified(token, now_s=1000.5) == GRANT


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 100])
def test_tokens_that_are_made_together_are_each_good_by_themselves(count):
    tokens = sign(grants(count), KEY)
    assert [verified(token) for token in tokens] == grants(count)


def test_tokens_that_are_made_together_are_signed_and_verified_once():
    signed, checked = [], []

    class Key:
        """A key that records what it signs and verifies."""

        def sign(self, said):
            signed.append(said)
            return KEY.sign(said)

        def verify(self, signature, said):
            checked.append(said)
            KEY.public_key().verify(signature, said)

    key: Any = Key()
    tokens = sign(grants(100), key)
    verifier = Verifier([key], "h")
    assert [verifier.verify(token, 0.0) for token in tokens] == grants(100)
    assert len(signed) == 1
    assert checked == signed
    # A verified root says nothing about another root.
    for forged in sign(grants(2), Ed25519PrivateKey.generate()):
        with pytest.raises(TransferRefused):
            verifier.verify(forged, 0.0)
    with pytest.raises(TransferRefused):
        verifier.verify(altered(tokens[0], 0, 3), 0.0)


def altered(token, part, bit):
    """Return the token with one bit flipped in one of its parts."""
    parts = [bytearray(data(piece)) for piece in token.split(".")]
    place = bit % (8 * len(parts[part]))
    parts[part][place // 8] ^= 1 << place % 8
    return ".".join(map(text, parts))


@given(st.integers(0, 2), st.integers(0, 10_000))
def test_any_altered_bit(part, bit):
    tokens = sign(grants(5), KEY)
    assert reason_of(altered(tokens[2], part, bit)) == "bad_signature"


def test_parts_of_other_tokens_make_none():
    """There are five leaves: paths have three hashes, except that of the last leaf, which has one."""
    first, *_, last = (token.split(".") for token in sign(grants(5), KEY))
    alone = sign([GRANT], KEY)[0].split(".")
    for payload, path, signature in [
        (last[0], first[1], first[2]),
        (first[0], last[1], last[2]),
        (first[0], "", first[2]),
        (first[0], first[1], alone[2]),
        (alone[0], first[1], first[2]),
        (first[0], text(data(first[1])[:64]), first[2]),
        (first[0], first[1] + "A" * 43, first[2]),
    ]:
        assert reason_of(f"{payload}.{path}.{signature}") == "bad_signature"


def test_a_node_is_no_grant():
    """The holder of tokens knows nodes of the tree and what they were hashed from; neither passes as a payload."""
    tokens = sign(grants(4), KEY)
    leaves = [hashlib.sha256(b"\0" + token.split(".")[0].encode()).digest() for token in tokens]
    inner = b"".join(sorted(leaves[:2]))
    _, path, signature = tokens[0].split(".")
    for payload in (inner.decode("latin-1"), text(inner), text(b"\1" + inner)):
        assert reason_of(f"{payload}.{text(data(path)[32:])}.{signature}") == "bad_signature"


def test_a_path_is_not_followed_without_end():
    (token,) = sign([GRANT], KEY)
    payload, _, signature = token.split(".")
    assert reason_of(f"{payload}.{text(bytes(33 * 32))}.{signature}") == "bad_signature"


def test_a_signature_for_another_purpose_is_none():
    payload = text(msgspec.json.encode(GRANT))
    leaf = hashlib.sha256(b"\0" + payload.encode()).digest()
    for said in (payload.encode(), leaf, b"fpga_pool.rpc.1" + leaf):
        assert reason_of(f"{payload}..{text(KEY.sign(said))}") == "bad_signature"


def test_expires_after_its_deadline():
    assert reason_of(sign([GRANT], KEY)[0], now_s=1000.6) == "expired"


def test_another_host():
    assert reason_of(sign([GRANT], KEY)[0], host="g") == "wrong_host"


def test_another_key():
    assert reason_of(sign([GRANT], Ed25519PrivateKey.generate())[0]) == "bad_signature"


def test_one_of_several_keys():
    other = Ed25519PrivateKey.generate()
    for key in (KEY, other):
        (token,) = sign([GRANT], key)
        assert Verifier([KEY.public_key(), other.public_key()], "h").verify(token, 0.0) == GRANT


def test_missing():
    assert reason_of("") == "missing_token"


def signed(claims):
    payload = text(msgspec.json.encode(claims))
    root = hashlib.sha256(b"\0" + payload.encode()).digest()
    return f"{payload}..{text(KEY.sign(b'fpga_pool.tokens.1' + root))}"


def test_what_is_signed_by_hand_is_read():
    assert verified(signed(msgspec.to_builtins(GRANT))) == GRANT


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": "2"},
        {"attempt": True},
        {"attempt": 1.5},
        {"input_bytes": -1},
        {"purpose": "steal"},
        {"deadline_s": None},
        {"job": ""},
    ],
)
def test_signed_nonsense(change):
    assert reason_of(signed({**msgspec.to_builtins(GRANT), **change})) == "bad_signature"


def test_signed_without_a_claim():
    claims = msgspec.to_builtins(GRANT)
    del claims["token_id"]
    assert reason_of(signed(claims)) == "bad_signature"


@given(st.text(min_size=1, max_size=200))
def test_garbage(token):
    assert reason_of(token) == "bad_signature"
