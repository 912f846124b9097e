"""The panel of Horizon: shows the views of the API's dashboard, and forwards their requests for the logged-in user."""

from pathlib import Path

#: Attributes of an XStatic module, by which Horizon finds the dashboard's files. It serves them at `horizon/lib/NAME`.
NAME = "fpga_pool"
BASE_DIR = str(Path(__file__).parents[1] / "api" / "dashboard" / "static")
