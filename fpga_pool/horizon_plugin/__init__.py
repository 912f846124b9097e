"""The panel of Horizon: shows the views of the API's dashboard, whose requests Horizon passes on for its user."""

from pathlib import Path

#: As of an XStatic module, by which Horizon finds the dashboard's files: it serves them below `horizon/lib/NAME`.
NAME = "fpga_pool"
BASE_DIR = str(Path(__file__).parents[1] / "api" / "dashboard" / "static")
