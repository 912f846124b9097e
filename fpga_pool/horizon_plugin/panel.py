"""The panels that Horizon registers."""

import horizon


class FpgaPool(horizon.Panel):
    """The panel in the Project dashboard, shown if the service catalog of the user's project has the pool."""

    name = "FPGA pool"
    slug = "fpga_pool"
    permissions = ("openstack.services.fpga",)


class AdminFpgaPool(FpgaPool):
    """The panel in the Admin dashboard."""
