"""What of Nova's request says that it is about the pool."""

from collections.abc import Mapping
from typing import Any

from fpga_pool.model.flavor import NAMESPACE

_FUNCTION = f"{NAMESPACE}:function"


def accelerator_specs(spec_obj: Any) -> Mapping[str, str] | None:
    """Return the extra specs of a request for accelerators; None for any other request."""
    flavor = spec_obj.flavor
    if not flavor or "extra_specs" not in flavor or _FUNCTION not in flavor.extra_specs:
        return None
    extra_specs: Mapping[str, str] = flavor.extra_specs
    return extra_specs
