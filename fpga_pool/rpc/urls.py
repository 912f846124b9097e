"""Errors in URLs of message brokers, and the options of oslo.messaging."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import oslo_messaging as messaging
from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput


@contextmanager
def url_named(option: str) -> Iterator[None]:
    """Raise InvalidInput, which names the option, if no transport can be created from its URL."""
    try:
        yield
    except cfg.Error:
        raise
    except (messaging.InvalidTransportURL, messaging.DriverLoadFailure, ValueError) as error:
        raise InvalidInput(f"{option}: expected a URL such as rabbit://USER:PASSWORD@HOST:5672/: {error}") from None


def messaging_options() -> Sequence[tuple[str | None, Sequence[cfg.Opt]]]:
    """Return all options of oslo.messaging by group (None = DEFAULT); it registers them only when it needs them."""
    # Imported here, because it loads every driver.
    from oslo_messaging.opts import list_opts

    found: Sequence[tuple[str | None, Sequence[cfg.Opt]]] = list_opts()
    return found


def brokers(conf: cfg.ConfigOpts) -> list[str]:
    """Return host and port of each broker of the URL; raise InvalidInput for an impossible port."""
    hosts = messaging.TransportURL.parse(conf).hosts
    for host in hosts:
        if host.port is not None and not 0 < host.port < 2**16:
            raise InvalidInput(f"[DEFAULT] transport_url: expected a port from 1 to 65535, found {host.port}")
    return [f"{host.hostname}:{host.port or 'default port'}" for host in hosts]
