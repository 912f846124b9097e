"""All options, group by group: for the services, and for the sample configuration."""

from types import ModuleType

from oslo_config import cfg

from fpga_pool.conf import agent, api, scheduler, simulated, standalone

GROUPS: tuple[ModuleType, ...] = (scheduler, agent, api, simulated, standalone)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return every group with its options, as oslo-config-generator wants them."""
    return [(module.GROUP, module.OPTS) for module in GROUPS]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Make the options known to `conf`."""
    for group, options in list_opts():
        conf.register_group(group)
        conf.register_opts(options, group)
