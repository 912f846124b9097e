"""The URLs of a panel: its page, and the API, to which requests of the page are forwarded.

They are forwarded with the token of the logged-in user.
"""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import re_path
from django.views.generic import TemplateView
from horizon.exceptions import ServiceCatalogException
from openstack_dashboard.api.base import url_for

from fpga_pool.horizon_plugin.forwarding import failure, forward

SERVICE_TYPE = "fpga"


def __getattr__(name: str) -> list[object]:
    """Return new `urlpatterns` for each panel, as Horizon adds the access checks of the panel's dashboard to them."""
    if name != "urlpatterns":
        raise AttributeError(name)
    page = TemplateView.as_view(template_name="fpga_pool/index.html", extra_context={"page_title": "FPGA pool"})
    return [re_path(r"^$", page, name="index"), re_path(r"^api/(?P<path>.+)$", forward_to_pool, name="api")]


def forward_to_pool(request: HttpRequest, path: str) -> HttpResponse:
    """Forward a request to the API in the user's service catalog, in the region selected in Horizon."""
    try:
        endpoint = url_for(request, SERVICE_TYPE)
    except ServiceCatalogException:
        return failure(503, f"the catalogue has no service {SERVICE_TYPE} in this region")
    verify = settings.OPENSTACK_SSL_CACERT or not settings.OPENSTACK_SSL_NO_VERIFY
    return forward(request, path, endpoint, request.user.token.id, verify=verify)
