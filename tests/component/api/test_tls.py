"""The API over TLS, with real certificates."""

import contextlib
import http.client
import json
import socket
import ssl
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from fpga_pool.api.http.traffic import ReceptionLimits
from fpga_pool.api.openapi import openapi
from fpga_pool.client import Client
from fpga_pool.conf.catalogue import server_tls
from fpga_pool.model.exceptions import InvalidInput

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}
WAIT_S = 60.0


@pytest.fixture
def tls(certificate):
    return server_tls(*configured(certificate))


def configured(files):
    names = "tls_cert", "tls_key"
    return {"api": dict(zip(names, files, strict=True))}, "api", *names


@pytest.fixture
def secure(pool, serve, tls):
    """Return a function that serves the pool over TLS and returns the URL."""
    return lambda **options: serve(pool, tls=tls, **options)


@pytest.fixture
def connect(certificate):
    with contextlib.ExitStack() as stack:

        def connect(url):
            context = ssl.create_default_context(cafile=certificate[0])
            connection = http.client.HTTPSConnection(urlsplit(url).netloc, timeout=WAIT_S, context=context)
            stack.callback(connection.close)
            return connection

        yield connect


def ask(connection, method, path, body=None, headers=None):
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_several_requests_of_one_connection_are_answered(secure, connect):
    url = secure()
    assert url.startswith("https://127.0.0.1:")
    connection = connect(url)
    for _ in range(3):
        status, answer = ask(connection, "GET", "/v1/slots")
        assert (status, len(answer["slots"])) == (200, 2)
    assert ask(connection, "GET", "/")[1]["versions"][0]["links"][0]["href"] == f"{url}/v1/"


def test_a_body_and_an_answer_of_many_records_arrive_whole(secure, connect):
    """A TLS record has at most 16 KiB. The body takes more than 50 records, the answer more than 4."""
    connection = connect(secure())
    jobs = [JOB | {"name": f"job {number} " + 200 * "x"} for number in range(3000)]
    body = json.dumps({"jobs": [*jobs, JOB | {"function": "nosuch"}]})
    assert len(body) > 50 * 16 * 1024
    status, answer = ask(connection, "POST", "/v1/batches", body, {"Content-Type": "application/json"})
    assert (status, answer["errors"][0]["code"]) == (400, "fpga_pool.unknown_function")
    assert answer["errors"][0]["detail"].startswith("jobs[3000].function: 'nosuch'")
    status, document = ask(connection, "GET", "/v1/openapi.json")
    assert status == 200
    assert document == json.loads(json.dumps(openapi()))
    assert len(json.dumps(document)) > 4 * 16 * 1024


def test_a_body_that_is_announced_too_large_is_refused(secure, connect):
    connection = connect(secure())
    connection.request("POST", "/v1/batches", headers={"Content-Length": str(2**40)})
    assert connection.getresponse().status == 413


def test_a_client_that_waits_for_leave_to_send_gets_it(secure, certificate):
    address = urlsplit(secure())
    head = b"POST /v1/batches HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
    context = ssl.create_default_context(cafile=certificate[0])
    with (
        socket.create_connection((address.hostname, address.port), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=address.hostname) as secured,
    ):
        secured.sendall(head + b"Content-Length: 2\r\n\r\n")
        assert secured.recv(1000).startswith(b"HTTP/1.1 100 ")
        secured.sendall(b"{}")
        heard = b""
        while b"HTTP/1.1 400 " not in heard:
            data = secured.recv(1000)
            assert data, heard
            heard += data


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["silent", "half a hello"])
def test_clients_that_do_not_end_their_handshake_hold_no_thread(secure, connect, sent):
    """There are twice as many such clients as threads, and their deadlines are not reached."""
    url = secure(limits=ReceptionLimits(head_s=600.0, body_s=600.0))
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            sock = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), WAIT_S)
            stack.enter_context(sock).sendall(sent)
        assert ask(connect(url), "GET", "/v1/slots")[0] == 200


def test_a_handshake_that_does_not_end_in_time_is_given_up(secure):
    url = urlsplit(secure(limits=ReceptionLimits(head_s=0.2)))
    with socket.create_connection((url.hostname, url.port), WAIT_S) as sock:
        assert sock.recv(1000) == b""


def test_a_client_that_speaks_plain_http_is_told(secure, connect):
    url = secure()
    plain = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_S)
    with contextlib.closing(plain):
        plain.request("GET", "/v1/slots")
        answer = plain.getresponse()
        assert (answer.status, json.load(answer)["errors"][0]["detail"]) == (400, "this port speaks https only")
    assert ask(connect(url), "GET", "/v1/slots")[0] == 200


def test_the_client_accepts_only_a_certificate_that_is_proven(secure, certificate, tmp_path):
    url = secure()
    with Client(url, cacert=str(certificate[0])) as client:
        assert len(client.slots()) == 2
    with (
        Client(url) as client,
        pytest.raises(
            InvalidInput, match=r"127.0.0.1:[0-9]+: its certificate is not trusted: self-signed certificate$"
        ),
    ):
        client.slots()
    with pytest.raises(InvalidInput, match=f"cacert: no file {tmp_path}/none"):
        Client(url, cacert=f"{tmp_path}/none")


# Certificates and keys that cannot be used


@pytest.fixture
def copies(certificate, tmp_path):
    """Return copies of certificate and key, for a test to damage."""
    made = tmp_path / "cert.pem", tmp_path / "key.pem"
    for copy, original in zip(made, certificate, strict=True):
        copy.write_bytes(original.read_bytes())
        copy.chmod(0o600)
    return made


def complaint(*files):
    with pytest.raises(InvalidInput) as refused:
        server_tls(*configured(files))
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_without_options_there_is_no_tls():
    assert server_tls(*configured((None, None))) is None


def test_half_of_a_pair_is_refused(copies):
    cert, key = copies
    assert complaint(cert, None) == f"[api] tls_key: required because tls_cert is {cert}; set both or none"
    assert complaint(None, key) == f"[api] tls_cert: required because tls_key is {key}; set both or none"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o666])
def test_a_key_that_all_users_can_read_is_refused(copies, mode):
    copies[1].chmod(mode)
    assert complaint(*copies) == (
        f"[api] tls_key: {copies[1]} has mode {mode:04o}, so that other users can read the key; it must be 0640"
    )


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640])
def test_a_key_may_be_for_its_owner_and_group(copies, mode):
    copies[1].chmod(mode)
    assert server_tls(*configured(copies)) is not None


def test_files_that_are_missing_or_no_pem_or_of_another_pair_are_named(copies, tmp_path):
    cert, key = copies
    none = tmp_path / "none.pem"
    assert complaint(none, key) == f"[api] tls_cert: {none} cannot be read: No such file or directory"
    assert complaint(cert, none) == f"[api] tls_key: {none} cannot be read: No such file or directory"
    assert complaint(key, key) == f"[api] tls_cert: {key} does not contain a certificate in PEM form"
    assert complaint(cert, cert) == f"[api] tls_key: {cert} does not contain an unencrypted private key in PEM form"
    other = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(pem(other, NoEncryption()))
    assert complaint(cert, key) == f"[api] tls_key: {key} is not the key of the certificate in {cert}"
    key.write_bytes(pem(other, BestAvailableEncryption(b"secret")))
    assert complaint(cert, key) == f"[api] tls_key: {key} does not contain an unencrypted private key in PEM form"


def pem(key, encryption):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
