"""All options, group by group: for the services, and for the sample configuration."""

from types import ModuleType

from oslo_config import cfg

from fpga_pool.conf import agent, api, catalogue, metrics, notifications, scheduler, standalone
from fpga_pool.conf.drivers import runner_libvirt, runner_nova, runner_simulated, simulated, tc, tiers
from fpga_pool.conf.policies import policy_opts
from fpga_pool.model.exceptions import InvalidInput

GROUPS: tuple[ModuleType, ...] = (
    scheduler,
    agent,
    api,
    catalogue,
    metrics,
    notifications,
    simulated,
    tc,
    tiers,
    runner_libvirt,
    runner_nova,
    runner_simulated,
    standalone,
)


Groups = list[tuple[cfg.OptGroup, list[cfg.Opt]]]


def list_opts() -> Groups:
    """Return every group with its options, as oslo-config-generator wants them."""
    return [*_fixed(), *policy_opts()]


def register_opts(conf: cfg.ConfigOpts, *, policies: bool = True) -> None:
    """Make the options known to `conf`; those of policies cost the time and memory to load every policy."""
    for group, options in list_opts() if policies else _fixed():
        conf.register_group(group)
        conf.register_opts(options, group)


def check_values(conf: cfg.ConfigOpts, *, policies: bool = True) -> None:
    """Read every option once, because oslo.config finds a wrong value only then; InvalidInput names the first."""
    for group, options in list_opts() if policies else _fixed():
        for option in options:
            try:
                conf[group.name][option.name]
            except cfg.ConfigSourceValueError as error:
                reason = str(error).rpartition(" is not valid: ")[2]
                raise InvalidInput(f"[{group.name}] {option.name}: {reason}") from None
    scheduler.check_default_policy(conf)


def _fixed() -> Groups:
    """Return the groups that are there whatever policies are installed."""
    return [(module.GROUP, module.OPTS) for module in GROUPS]
