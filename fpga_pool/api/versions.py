"""Versions of the API: the discovery documents for clients, and the microversion of a request."""

from typing import Any

import microversion_parse
from flask import Response, g, request

from fpga_pool.api.context import variable_of
from fpga_pool.model.exceptions import InvalidInput, UnsupportedVersion

#: Name of the service in Keystone's catalogue and in the header of microversions.
SERVICE_TYPE = "fpga"
HEADER = "OpenStack-API-Version"
_VARIABLE = variable_of(HEADER)

#: The first and the newest microversion.
OLDEST = microversion_parse.Version(1, 0)
NEWEST = microversion_parse.Version(1, 0)


def names() -> list[str]:
    """Return the values of the microversion header for this service."""
    minors = range(OLDEST.minor, NEWEST.minor + 1)
    return [*(f"{SERVICE_TYPE} {OLDEST.major}.{minor}" for minor in minors), f"{SERVICE_TYPE} latest"]


def choose_version() -> None:
    """Set the microversion that the request selects. Raises UnsupportedVersion, which names the supported ones."""
    g.microversion = OLDEST
    if _VARIABLE not in request.environ:
        return
    headers = {_VARIABLE: request.environ[_VARIABLE]}
    try:
        text = microversion_parse.get_version(headers, service_type=SERVICE_TYPE)
        if not text:
            # A version for another service is ignored; one without the name of a service is invalid.
            _require_services(headers[_VARIABLE])
            return
        wanted = NEWEST if text == "latest" else microversion_parse.parse_version_string(text)
    except (TypeError, ValueError):
        raise InvalidInput(f"{HEADER}: expected `{SERVICE_TYPE} X.Y` or `{SERVICE_TYPE} latest`") from None
    if not OLDEST <= wanted <= NEWEST:
        raise UnsupportedVersion(f"{HEADER}: version {wanted} is not supported; expected {OLDEST} to {NEWEST}")
    g.microversion = wanted


def _require_services(text: str) -> None:
    if any(len(one.split()) == 1 for one in text.split(",")):
        raise ValueError(text)


def state_version(response: Response) -> None:
    """Add the microversion that was served to a response, and the Vary header."""
    response.headers[HEADER] = f"{SERVICE_TYPE} {g.get('microversion', OLDEST)}"
    if "Vary" in response.headers:
        response.vary.add(HEADER)
    else:
        response.headers["Vary"] = HEADER


def document(root: str) -> dict[str, Any]:
    """Return the description of version 1 of the API at this address."""
    return {
        "id": "v1.0",
        "status": "CURRENT",
        "version": str(NEWEST),
        "max_version": str(NEWEST),
        "min_version": str(OLDEST),
        "links": [
            {"rel": "self", "href": f"{root}/v1/"},
            {"rel": "describedby", "type": "application/json", "href": f"{root}/v1/openapi.json"},
        ],
    }
