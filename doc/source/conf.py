"""Sphinx configuration."""

import sys
from importlib.metadata import distribution
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "fpga_pool"
author = "fpga_pool contributors"
project_copyright = "fpga_pool contributors"
version = release = distribution(project).version

extensions = [
    "cliff.sphinxext",
    "myst_nb",
    "openstackdocstheme",
    "oslo_config.sphinxconfiggen",
    "oslo_config.sphinxext",
    "oslo_policy.sphinxext",
    "oslo_policy.sphinxpolicygen",
    "release_notes",
    "links",
    "metrics",
    "notifications",
    "programs",
    "rest_api",
    "transitions",
]
# Both paths are relative to this directory; .gitignore has what is written.
_ETC = Path(__file__).parents[2] / "etc" / "fpga_pool"
config_generator_config_file = [(str(_ETC / "fpga-pool-config-generator.conf"), "_samples/fpga-pool")]
policy_generator_config_file = [(str(_ETC / "fpga-pool-policy-generator.conf"), "_samples/fpga-pool")]
# Notebooks have outputs of one run, which tests compare.  One whose outputs are the same on every machine is run here.
nb_execution_mode = "off"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
# Servers that pages name as examples; `tox -e linkcheck` asks the others.
linkcheck_ignore = [r"https?://(HOST|127\.0\.0\.1|localhost|controller|([\w-]+\.)*example\.(org|com|net)|\[?::1\]?)\b"]
linkcheck_timeout = 20
html_theme = "openstackdocs"
# The theme would otherwise look for the project on opendev.org.
openstackdocs_auto_name = False
openstackdocs_auto_version = False
html_theme_options = {"show_other_versions": False, "display_badge": False, "root_title": project}
html_last_updated_fmt = ""
pygments_style = "native"
nitpicky = True
