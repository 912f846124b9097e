"""The panel group, and the settings that both panels need."""

PANEL_GROUP = "fpga"
PANEL_GROUP_NAME = "FPGA"
PANEL_GROUP_DASHBOARD = "project"
ADD_INSTALLED_APPS = ["fpga_pool.horizon_plugin"]
ADD_XSTATIC_MODULES: list[tuple[str, list[str]]] = [("fpga_pool.horizon_plugin", [])]
