"""What Placement has left of the pool's slots, for requests for several instances.

The pool learns of a claim when the instance reaches its compute node; until then only Placement knows.  For one
instance its candidates say enough.  Those of several are claimed from one list, which does not say how often.
"""

from collections.abc import Mapping
from urllib.parse import urlencode

from keystoneauth1 import exceptions as ks_exc
from nova.scheduler.client import report
from oslo_log import log as logging

from fpga_pool.model.flavor import OWNER_TRAIT, RESOURCE_CLASS, function_trait

LOG = logging.getLogger(__name__)

_VERSION = "1.36"


def slots_left(request_id: str | None, function: str, most_candidates: int) -> Mapping[str, int] | None:
    """Return how many slots each provider has left that can hold a function; None where Placement does not tell."""
    asked = urlencode(
        {
            "resources": f"{RESOURCE_CLASS}:1",
            "required": f"{OWNER_TRAIT},{function_trait(function)}",
            "limit": most_candidates,
        }
    )
    try:
        answer = report.report_client_singleton().get(
            f"/allocation_candidates?{asked}", version=_VERSION, global_request_id=request_id
        )
    except ks_exc.ClientException as error:
        LOG.warning("Placement does not tell what is left of the slots: %s", error)
        return None
    if not answer:
        LOG.warning("Placement does not tell what is left of the slots: status %s", answer.status_code)
        return None
    providers = answer.json()["provider_summaries"]
    return {
        uuid: known["resources"][RESOURCE_CLASS]["capacity"] - known["resources"][RESOURCE_CLASS]["used"]
        for uuid, known in providers.items()
        if RESOURCE_CLASS in known["resources"]
    }
