"""The panel for operators, who may list and drain slots."""

PANEL = "fpga_pool"
PANEL_GROUP = "compute"
PANEL_DASHBOARD = "admin"
ADD_PANEL = "fpga_pool.horizon_plugin.panel.AdminFpgaPool"
