"""Free capacity of the pool's providers in Placement, for requests whose candidates do not contain it.

The pool learns of a claim when the instance reaches its compute node; until then only Placement knows it.  For a single
instance the candidates are sufficient.  Several instances are claimed from one list of candidates, which does not
contain how many times each candidate can be claimed.
"""

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from keystoneauth1 import exceptions as ks_exc
from nova.conf import CONF
from nova.scheduler.client import report
from oslo_log import log as logging

from fpga_pool.model.catalogue import Function
from fpga_pool.model.extra_specs import placement_traits
from fpga_pool.model.flavor import OWNER_TRAIT, RESOURCE_CLASS

LOG = logging.getLogger(__name__)

_VERSION = "1.36"


class Inventory(msgspec.Struct, gc=False):
    """Capacity and use of a resource class."""

    capacity: int
    used: int


class Provider(msgspec.Struct, gc=False):
    """A resource provider, with its inventories by resource class."""

    resources: dict[str, Inventory]


class _Candidates(msgspec.Struct):
    """The decoded part of a response with allocation candidates, which exceeds 10 MB for ten thousand hosts."""

    provider_summaries: dict[str, Provider]


_DECODER = msgspec.json.Decoder(_Candidates)


def providers_with(resource_class: str, request_id: str | None, *required: str) -> Mapping[str, Provider] | None:
    """Return the providers with at least one free unit of a resource class, and others of their hosts, by uuid.

    `required` are traits that such a provider must have.  None if Placement does not respond.
    """
    asked = {"resources": f"{resource_class}:1", "limit": CONF.scheduler.max_placement_results}
    if required:
        asked["required"] = ",".join(required)
    url = f"/allocation_candidates?{urlencode(asked)}"
    try:
        answer = report.report_client_singleton().get(url, version=_VERSION, global_request_id=request_id)
        if answer:
            return _DECODER.decode(answer.content).provider_summaries
        why = f"status {answer.status_code}"
    except (ks_exc.ClientException, msgspec.DecodeError) as error:
        why = str(error)
    LOG.warning("cannot read the free capacity of %s from Placement: %s", resource_class, why)
    return None


def slots_left(request_id: str | None, function: Function) -> Mapping[str, int] | None:
    """Return the number of free slots of each provider that can hold a function; None if Placement does not respond."""
    providers = providers_with(RESOURCE_CLASS, request_id, OWNER_TRAIT, *placement_traits(function))
    if providers is None:
        return None
    known = ((uuid, provider.resources.get(RESOURCE_CLASS)) for uuid, provider in providers.items())
    return {uuid: slots.capacity - slots.used for uuid, slots in known if slots}
