"""FpgaPoolSlotFilter: passes hosts where the pool has slots for an instance, with the best card of each host first."""

from collections.abc import Iterable, Mapping
from typing import Any

import nova.conf
from nova.exception import NoValidHost
from nova.scheduler import filters
from nova.scheduler.utils import request_is_rebuild
from oslo_log import log as logging

from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.model.extra_specs import contradictions
from fpga_pool.model.flavor import requested
from fpga_pool.model.rules.instance.explaining import on_one_card
from fpga_pool.nova_plugin.candidates import accelerator_specs
from fpga_pool.nova_plugin.conf import register_opts
from fpga_pool.nova_plugin.placement import slots_left
from fpga_pool.nova_plugin.pool import PoolUnknown, pool
from fpga_pool.nova_plugin.registry import REQUESTS
from fpga_pool.nova_plugin.request import Request

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF
register_opts(CONF)


class FpgaPoolSlotFilter(filters.BaseHostFilter, filters.CandidateFilterMixin):
    """Passes hosts with slots that hold, or can be loaded with, the function of the flavor.

    These slots are free, or held by the pool for jobs that can be evicted.  The filter must run before filters that
    drop allocation candidates, since it infers from the first candidate of a host what was claimed there.  If
    `fpga_pool:topology` requires linked slots, they are chosen one by one, as the pool will choose them
    (`model.rules.instance.linking`).

    If no host passes at first, it raises NoValidHost with the reason, which becomes part of the server's fault.
    """

    RUN_ON_REBUILD = False

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterable[Any]:
        """Return the hosts that pass; returns at once for a request without extra specs of the pool."""
        extra_specs = accelerator_specs(spec_obj)
        if extra_specs is None or not CONF.fpga_pool.enabled or request_is_rebuild(spec_obj):
            return filter_obj_list
        hosts = list(filter_obj_list)
        try:
            return self._passing(hosts, spec_obj, extra_specs)
        except PoolUnknown as unknown:
            LOG.warning("%s: %s", self._what_happens(), unknown)
            why = "the pool of accelerators does not respond"
        except FpgaPoolError as error:
            LOG.warning("no host for instance %s: %s", spec_obj.instance_uuid, error)
            raise NoValidHost(reason=str(error)) from None
        except NoValidHost:
            raise
        except Exception:  # an error here must not fail requests that Placement could decide
            LOG.exception("%s", self._what_happens())
            why = "the request cannot be compared with the pool of accelerators"
        return self._without_the_pool(hosts, spec_obj, why)

    def _without_the_pool(self, hosts: list[Any], spec_obj: Any, why: str) -> list[Any]:
        """Return all hosts if `fail_open` is set; else none, or raise NoValidHost in a first pass."""
        began = _has_claims(REQUESTS.get(spec_obj), hosts)
        REQUESTS.drop(spec_obj)
        if CONF.fpga_pool.fail_open:
            return hosts
        if began:
            return []
        raise NoValidHost(reason=why)

    def _passing(self, hosts: list[Any], spec_obj: Any, extra_specs: Mapping[str, str]) -> list[Any]:
        request = REQUESTS.get(spec_obj)
        if request is not None and request.is_about(hosts):
            passing = request.next_pass(hosts)
            self._log_result(request, hosts, passing, spec_obj)
            return passing
        request = self._new_request(spec_obj, extra_specs)
        passing = request.first_pass(hosts)
        passing += request.further(passing)
        REQUESTS.keep(spec_obj, request)
        self._log_result(request, hosts, passing, spec_obj)
        if hosts and not passing:
            raise NoValidHost(reason=f"no host has {request.wanted.what} available for {request.wanted.function}")
        return passing

    def _new_request(self, spec_obj: Any, extra_specs: Mapping[str, str]) -> Request:
        wanted = requested(extra_specs)
        project_id = spec_obj.project_id if "project_id" in spec_obj else ""
        picture = pool(CONF).knowing(wanted.function if wanted is not None else "")
        if wanted is not None:
            picture.observations.require_usable(project_id, wanted.function)
        wrong = contradictions(extra_specs, picture.catalogue)
        if wanted is None or wrong:
            raise InvalidInput(f"the flavor can never have its accelerators: {'; '.join(wrong)}")
        stay_s = wanted.runtime_s
        if stay_s is not None:
            picture.declared.note(wanted.function, stay_s)
        else:
            stay_s = picture.run_time_s(project_id, wanted.function)
        stay_s = CONF.fpga_pool.expected_stay if stay_s is None else stay_s
        fitting = picture.fitting(wanted.function, stay_s)
        instances = max(1, spec_obj.num_instances) if "num_instances" in spec_obj else 1
        left = None
        if instances > 1:
            request_id = getattr(spec_obj._context, "global_id", None)  # noqa: SLF001  # filters get no other
            left = slots_left(request_id, picture.catalogue.function(wanted.function))
        together = on_one_card(extra_specs)
        instance = spec_obj.instance_uuid if "instance_uuid" in spec_obj else ""
        return Request(wanted, fitting, instances, left, together=together, instance=instance or "", picture=picture)

    def _log_result(self, request: Request, hosts: list[Any], passing: list[Any], spec_obj: Any) -> None:
        if LOG.isEnabledFor(logging.DEBUG):
            passed = set(passing)
            for host in hosts:
                verdict = "passes" if host in passed else "does not pass"
                LOG.debug("%s %s for %s: %s", host.host, verdict, request.wanted.function, request.explain(host))
        if hosts and not passing and not request.complete:
            LOG.info(
                "no host has %d slots for %s for instance %s; the first of %d: %s: %s",
                request.wanted.count,
                request.wanted.function,
                spec_obj.instance_uuid,
                len(hosts),
                hosts[0].host,
                request.explain(hosts[0]),
            )

    def _what_happens(self) -> str:
        return "left to Placement" if CONF.fpga_pool.fail_open else "no host found"


def _has_claims(request: Request | None, hosts: list[Any]) -> bool:
    """Return whether this is a later pass, in which NoValidHost would keep Nova from releasing what it has claimed."""
    return request is not None and request.is_about(hosts)
