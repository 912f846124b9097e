"""The panel for the work of a project."""

PANEL = "fpga_pool"
PANEL_GROUP = "fpga"
PANEL_DASHBOARD = "project"
ADD_PANEL = "fpga_pool.horizon_plugin.panel.FpgaPool"
