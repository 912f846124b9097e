"""The panel of a project's work."""

PANEL = "fpga_pool"
PANEL_GROUP = "fpga"
PANEL_DASHBOARD = "project"
ADD_PANEL = "fpga_pool.horizon_plugin.panel.FpgaPool"
