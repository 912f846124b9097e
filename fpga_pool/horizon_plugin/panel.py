"""The panel, as Horizon registers it."""

import horizon


class FpgaPool(horizon.Panel):
    """In the Project dashboard, where the catalogue of the user's project has the pool."""

    name = "FPGA pool"
    slug = "fpga_pool"
    permissions = ("openstack.services.fpga",)


class AdminFpgaPool(FpgaPool):
    """In the Admin dashboard."""
