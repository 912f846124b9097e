"""Limits of projects that Keystone keeps (unified limits), read with oslo.limit."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from keystoneauth1.exceptions import ClientException
from keystoneauth1.exceptions.auth_plugins import MissingAuthPlugin
from openstack.exceptions import SDKException
from oslo_config import cfg
from oslo_limit import limit, opts
from oslo_limit.exception import SessionInitError

from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable
from fpga_pool.model.objects.quotas import UNLIMITED, ProjectLimits, QuotaLimits, Resource

LOG = logging.getLogger(__name__)

GROUP = "oslo_limit"
#: Unit of limits in bytes, because Keystone's numbers have 31 bits.
MIB = 1 << 20
#: The name of each resource among Keystone's limits of the service.
NAMES: Mapping[Resource, str] = {one: one.value for one in Resource} | {Resource.INPUT_BYTES: "input_mib"}
#: How old an answer of Keystone may be, in seconds, while it responds.
MAX_AGE_S = 30.0


class UnifiedLimits:
    """Limits by project from Keystone: at most MAX_AGE_S old, or the last known ones while it does not respond.

    Parameters
    ----------
    enforcer
        Creates oslo.limit's Enforcer, which queries Keystone; called when limits are first needed.
    defaults
        Limits for resources that are not registered with Keystone.

    """

    def __init__(
        self, enforcer: Callable[[], Any], defaults: QuotaLimits, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._make, self._enforcer = enforcer, None
        self._defaults = defaults
        self._timer = timer
        self._lock = threading.Lock()
        self._known: dict[str, tuple[ProjectLimits, float]] = {}

    def of(self, project_id: str) -> ProjectLimits:
        """Return the limits of a project; raise ServiceUnavailable if they are unknown and Keystone is silent."""
        now_s = self._timer()
        found, read_s = self._known.get(project_id, (None, 0.0))
        if found is not None and now_s - read_s < MAX_AGE_S:
            return found
        try:
            with self._lock:
                read = self._read(project_id)
        except (ClientException, SDKException, SessionInitError, ValueError) as error:
            if found is None:
                raise ServiceUnavailable(
                    f"the limits of project {project_id} are not known: Keystone did not return them ({error}); try "
                    "again later"
                ) from error
            LOG.warning("Keystone did not return the limits of project %s; the last known ones apply: %s",
                        project_id, error)  # fmt: skip
            read = found
        self._known[project_id] = read, now_s
        return read

    def _read(self, project_id: str) -> ProjectLimits:
        enforcer = self._enforcer = self._enforcer or self._make()
        registered = _limits(enforcer.get_registered_limits(None))
        return ProjectLimits(_limits(enforcer.get_project_limits(project_id, None)), registered.over(self._defaults))


def _limits(named: list[tuple[str, int]]) -> QuotaLimits:
    by_name = dict(named)
    limits = {resource: by_name[name] for resource, name in NAMES.items() if name in by_name}
    if limits.get(Resource.INPUT_BYTES, UNLIMITED) != UNLIMITED:
        limits[Resource.INPUT_BYTES] *= MIB
    return QuotaLimits(**limits)


def open_unified_limits(conf: cfg.ConfigOpts, defaults: QuotaLimits) -> UnifiedLimits:
    """Return Keystone's limits as configured; raise InvalidInput if the access to Keystone is not configured.

    `conf` must be the process's own `cfg.CONF`: oslo.limit reads no other.
    """
    try:
        opts.register_opts(conf)
    except (ClientException, MissingAuthPlugin) as error:
        raise InvalidInput(f"[{GROUP}]: {error}") from error
    if not conf.oslo_limit.auth_type:
        raise InvalidInput(f"[{GROUP}] auth_type: missing; required because [scheduler] limits_from is keystone")
    return UnifiedLimits(lambda: limit.Enforcer(lambda *_: {}, cache=False), defaults)
