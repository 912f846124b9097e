"""Sphinx configuration of the release notes."""

project = "fpga_pool Release Notes"
author = "fpga_pool contributors"
project_copyright = author

extensions = ["openstackdocstheme", "reno.sphinxext"]
html_theme = "openstackdocs"
openstackdocs_auto_name = False
openstackdocs_auto_version = False
html_theme_options = {"show_other_versions": False, "display_badge": False, "root_title": project}
