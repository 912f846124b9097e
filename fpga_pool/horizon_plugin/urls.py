"""What is below the URL of a panel: its page, and the API."""

from django.urls import re_path
from django.views.generic import TemplateView

from fpga_pool.horizon_plugin.views import forward_to_pool


def __getattr__(name: str) -> list[object]:
    """Make `urlpatterns` for each panel: Horizon adds to them what its dashboard demands of users."""
    if name != "urlpatterns":
        raise AttributeError(name)
    page = TemplateView.as_view(template_name="fpga_pool/index.html", extra_context={"page_title": "FPGA pool"})
    return [re_path(r"^$", page, name="index"), re_path(r"^api/(?P<path>.+)$", forward_to_pool, name="api")]
