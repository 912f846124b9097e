"""Methods that guest drivers need not implement."""

import pytest

from fpga_pool.drivers.guests.domain import Domain, GuestDriver
from fpga_pool.model.exceptions import InvalidInput


class Channels(GuestDriver):
    """A driver of channels only, without PCI passthrough."""

    from_conf = watch = running = find = check = attach = detach = close = None


@pytest.mark.parametrize("method", ["attach_function", "detach_function"])
def test_a_driver_of_channels_says_that_it_passes_no_functions(method):
    domain = Domain(instance="vm", name="vm", project_id="p", request=None)
    with pytest.raises(InvalidInput, match="Channels does not support PCI passthrough"):
        getattr(Channels(), method)(domain, 0, "0000:3b:00.1")
