"""Forwarding of the page's requests to the API, with an allow-list of methods and headers.

The browser talks to Horizon only. The user's token is added here, and never reaches the page.
"""

import http
import json
import logging
from urllib.parse import quote

import requests
from django.http import HttpRequest, HttpResponse

LOG = logging.getLogger(__name__)

_METHODS = ("GET", "POST", "PATCH", "DELETE")
_VERSION_HEADER = "OpenStack-API-Version"
#: Headers that are forwarded in requests and in answers.  Others, such as cookies and hop-by-hop headers, are not.
_ASKED = ("Accept", "If-Match", "If-None-Match", _VERSION_HEADER)
_ANSWERED = ("Cache-Control", "ETag", "Retry-After", "X-Openstack-Request-Id", _VERSION_HEADER)
_JSON = "application/json"
MAX_REQUEST_BYTES = 2**20
MAX_ANSWER_BYTES = 32 * 2**20
_PIECE_BYTES = 64 * 1024
#: Timeouts for connecting, and between two pieces of an answer; the page waits for 20 s.
_TIMEOUTS_S = (5.0, 20.0)


def forward(request: HttpRequest, path: str, endpoint: str, token: str, *, verify: bool | str = True) -> HttpResponse:
    """Forward a request for a path below `endpoint` to the API with the token, and return its answer.

    `verify` is whether the API's certificate is verified, or the file with the trusted CA certificates.  Errors have
    the form of the API's: 404, 405, 413 or 415 if the request is refused; 502 or 504 if the API does not answer
    properly.
    """
    version, *parts = path.split("/")
    if version != "v1" or not parts or any(part in ("", ".", "..") for part in parts):
        return failure(404, "no such path of the API")
    if request.method not in _METHODS:
        return failure(405, f"expected one of {', '.join(_METHODS)}", Allow=", ".join(_METHODS))
    length = request.headers.get("Content-Length") or "0"
    if not length.isdecimal() or int(length) > MAX_REQUEST_BYTES:
        return failure(413, f"expected at most {MAX_REQUEST_BYTES} bytes")
    headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
    if int(length):
        if request.content_type != _JSON:
            return failure(415, f"expected Content-Type: {_JSON}")
        headers["Content-Type"] = _JSON
    # No compression, so that the size that is checked is that of the received bytes.
    headers |= {"X-Auth-Token": token, "Accept-Encoding": "identity"}
    url = f"{endpoint.rstrip('/').removesuffix('/v1')}/{quote(path)}"
    try:
        with requests.request(
            request.method,
            url,
            params=request.META.get("QUERY_STRING", ""),
            data=request.body,
            headers=headers,
            timeout=_TIMEOUTS_S,
            verify=verify,
            allow_redirects=False,
            stream=True,
        ) as answer:
            body = _read(answer)
    except requests.Timeout:
        return failure(504, "the API of the pool did not answer in time")
    except requests.RequestException as error:
        LOG.warning("the API of the pool at %s does not answer: %s", endpoint, type(error).__name__)
        return failure(502, "the API of the pool cannot be reached")
    if body is None:
        return failure(502, f"the answer of the API has more than {MAX_ANSWER_BYTES} bytes")
    passed = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
    # A proxy's error page in place of an answer is returned as plain text, so that it does not get Horizon's origin.
    is_json = answer.headers.get("Content-Type", "").partition(";")[0].strip() == _JSON
    return _response(body, answer.status_code, _JSON if is_json else "text/plain", passed)


def failure(status: int, detail: str, **headers: str) -> HttpResponse:
    """Return an error response in the format of the API."""
    error = {"status": status, "title": http.HTTPStatus(status).phrase, "detail": detail}
    return _response(json.dumps({"errors": [error]}).encode(), status, _JSON, headers)


def _read(answer: requests.Response) -> bytes | None:
    """Return the body; None if it is too large."""
    body = bytearray()
    for piece in answer.iter_content(_PIECE_BYTES):
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            return None
    return bytes(body)


def _response(body: bytes, status: int, media_type: str, headers: dict[str, str]) -> HttpResponse:
    return HttpResponse(
        body, status=status, content_type=media_type, headers=headers | {"X-Content-Type-Options": "nosniff"}
    )
