"""Validators of the pool's extra specs for nova-api, which refuse an invalid value when it is set on a flavor."""

import nova.conf
from nova import exception
from nova.api.validation.extra_specs.base import ExtraSpecValidator
from oslo_log import log as logging

from fpga_pool.model.exceptions import InvalidCatalogue, InvalidInput, UnknownFunction
from fpga_pool.model.flavor import EXTRA_SPECS, NAMESPACE, check_extra_spec
from fpga_pool.model.objects.bitstreams import is_design
from fpga_pool.nova_plugin.conf import catalogue, register_opts

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF
register_opts(CONF)


class PoolExtraSpecValidator(ExtraSpecValidator):
    """Names the invalid extra spec and the expected values; Nova itself only names a regular expression.

    A function must be in the catalogue if nova.conf of nova-api names one, which is read each time, as it may change.
    A design is not checked: only the pool has access to its database, and a design may be withdrawn later anyway.
    """

    def validate(self, name: str, value: str) -> None:
        """Raise ValidationError if a value is not valid."""
        try:
            check_extra_spec(name, value)
            if name == f"{NAMESPACE}:function" and CONF.fpga_pool.catalogue and not is_design(value):
                catalogue(CONF).function(value)
        except InvalidCatalogue as error:  # a broken file must not prevent the creation of flavors
            LOG.warning("the function of a flavor is not checked: %s", error)
        except (InvalidInput, UnknownFunction) as error:
            raise exception.ValidationError(str(error)) from None


def register() -> list[ExtraSpecValidator]:
    """Return the validators; Nova calls this when nova-api starts."""
    known = [
        PoolExtraSpecValidator(
            name=name, description=what, value={"type": str, "description": what, "pattern": pattern}
        )
        for name, (pattern, what) in EXTRA_SPECS.items()
    ]
    # Nova matches known names first; all others are typos, which are refused with the list of known names.
    unknown = PoolExtraSpecValidator(
        name=f"{NAMESPACE}:{{name}}",
        description="not an extra spec of the pool",
        value={"type": str, "description": "refused"},
        parameters=[{"name": "name", "pattern": ".*", "description": "any other name"}],
    )
    return [*known, unknown]
