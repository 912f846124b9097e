"""Passes requests of the page on, in the name of the user who is logged in."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from horizon.exceptions import ServiceCatalogException
from openstack_dashboard.api.base import url_for

from fpga_pool.horizon_plugin.forwarding import failure, forward

SERVICE_TYPE = "fpga"


def forward_to_pool(request: HttpRequest, path: str) -> HttpResponse:
    """Ask the API in the catalogue of the user, of the region that is chosen in Horizon."""
    try:
        endpoint = url_for(request, SERVICE_TYPE)
    except ServiceCatalogException:
        return failure(503, f"the catalogue has no service {SERVICE_TYPE} in this region")
    verify = settings.OPENSTACK_SSL_CACERT or not settings.OPENSTACK_SSL_NO_VERIFY
    return forward(request, path, endpoint, request.user.token.id, verify=verify)
