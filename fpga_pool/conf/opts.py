"""All options, group by group: for the services, and for the sample configuration."""

from collections.abc import Sequence

from oslo_config import cfg

from fpga_pool.conf import agent, catalogue, drivers, scheduler, services
from fpga_pool.conf.policies import policy_opts
from fpga_pool.model.exceptions import InvalidInput

Groups = list[tuple[cfg.OptGroup, Sequence[cfg.Opt]]]
#: The groups that are there whatever policies are installed.
FIXED: Groups = [
    (scheduler.GROUP, scheduler.OPTS),
    (agent.GROUP, agent.OPTS),
    (services.API_GROUP, services.API_OPTS),
    (catalogue.GROUP, catalogue.OPTS),
    (services.METRICS_GROUP, services.METRICS_OPTS),
    (services.NOTIFICATIONS_GROUP, services.NOTIFICATIONS_OPTS),
    (drivers.SIMULATED_GROUP, drivers.SIMULATED_OPTS),
    (drivers.TC_GROUP, drivers.TC_OPTS),
    (drivers.TIERS_GROUP, drivers.TIERS_OPTS),
    (drivers.RUNNER_LIBVIRT_GROUP, drivers.RUNNER_LIBVIRT_OPTS),
    (drivers.RUNNER_NOVA_GROUP, drivers.RUNNER_NOVA_OPTS),
    (drivers.RUNNER_SIMULATED_GROUP, drivers.RUNNER_SIMULATED_OPTS),
    (services.STANDALONE_GROUP, services.STANDALONE_OPTS),
]


def list_opts() -> Groups:
    """Return every group with its options, as oslo-config-generator wants them."""
    return [*FIXED, *policy_opts()]


def register_opts(conf: cfg.ConfigOpts, *, policies: bool = True) -> None:
    """Make the options known to `conf`; those of policies cost the time and memory to load every policy."""
    for group, options in list_opts() if policies else FIXED:
        conf.register_group(group)
        conf.register_opts(options, group)


def check_values(conf: cfg.ConfigOpts, *, policies: bool = True) -> None:
    """Read every option once, because oslo.config finds a wrong value only then; InvalidInput names the first."""
    for group, options in list_opts() if policies else FIXED:
        for option in options:
            try:
                conf[group.name][option.name]
            except cfg.ConfigSourceValueError as error:
                reason = str(error).rpartition(" is not valid: ")[2]
                raise InvalidInput(f"[{group.name}] {option.name}: {reason}") from None
    scheduler.check_default_policy(conf)
