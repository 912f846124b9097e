"""URLs of message brokers that no transport can be made of."""

from collections.abc import Iterator
from contextlib import contextmanager

import oslo_messaging as messaging
from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput


@contextmanager
def url_named(option: str) -> Iterator[None]:
    """Raise InvalidInput, which names the option, where no transport can be made of its URL."""
    try:
        yield
    except cfg.Error:
        raise
    except (messaging.InvalidTransportURL, messaging.DriverLoadFailure, ValueError) as error:
        raise InvalidInput(f"{option}: expected a URL such as rabbit://USER:PASSWORD@HOST:5672/: {error}") from None
