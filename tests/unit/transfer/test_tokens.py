import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer.tokens import TransferGrant, sign, verify

KEY = Ed25519PrivateKey.generate()
GRANT = TransferGrant(
    job="j", attempt=2, project_id="p", host="h", purpose="send", input_bytes=5, token_id="t", deadline_s=1000.5
)


def reason_of(token, *, host="h", now_s=0.0):
    with pytest.raises(TransferRefused) as caught:
        verify(token, [KEY.public_key()], host, now_s)
    assert caught.value.__cause__ is None
    return caught.value.reason


def test_what_was_signed_is_what_is_read():
    assert verify(sign(GRANT, KEY), [KEY.public_key()], "h", 1000.5) == GRANT


def test_it_is_a_jwt_as_a_library_makes_and_reads_it():
    token = sign(GRANT, KEY)
    claims = jwt.decode(token, KEY.public_key(), algorithms=["EdDSA"], audience="h", options={"verify_exp": False})
    assert jwt.encode(claims, KEY, algorithm="EdDSA") == token


def test_expires_after_its_deadline():
    assert reason_of(sign(GRANT, KEY), now_s=1000.6) == "expired"


def test_another_host():
    assert reason_of(sign(GRANT, KEY), host="g") == "wrong_host"


def test_another_key():
    assert reason_of(sign(GRANT, Ed25519PrivateKey.generate())) == "bad_signature"


def test_missing():
    assert reason_of("") == "missing_token"


def test_algorithm_none_is_no_signature():
    claims = jwt.decode(sign(GRANT, KEY), options={"verify_signature": False})
    assert reason_of(jwt.encode(claims, None, algorithm="none")) == "bad_signature"


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": "2"},
        {"attempt": True},
        {"attempt": 1.5},
        {"input_bytes": -1},
        {"purpose": "steal"},
        {"exp": None},
        {"job": ""},
    ],
)
def test_signed_nonsense(change):
    claims = jwt.decode(sign(GRANT, KEY), options={"verify_signature": False})
    assert reason_of(jwt.encode({**claims, **change}, KEY, algorithm="EdDSA")) == "bad_signature"


def test_signed_without_a_claim():
    claims = jwt.decode(sign(GRANT, KEY), options={"verify_signature": False})
    del claims["jti"]
    assert reason_of(jwt.encode(claims, KEY, algorithm="EdDSA")) == "bad_signature"


@given(st.text(min_size=1, max_size=200))
def test_garbage(token):
    assert reason_of(token) == "bad_signature"


@given(st.data())
def test_any_altered_character(data):
    token = sign(GRANT, KEY)
    place = data.draw(st.integers(0, len(token) - 2))
    other = data.draw(st.sampled_from("ABCxyz012-_.").filter(lambda c: c != token[place]))
    assert reason_of(token[:place] + other + token[place + 1 :]) == "bad_signature"
