"""All options, group by group: for the services, and for the sample configuration."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

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


def unknown_names(conf: cfg.ConfigOpts, *, policies: bool = True) -> list[str]:
    """Return what no option reads in the files of `conf`: names in a group of ours, groups named almost as one of ours.

    Other groups are left out: they are those of libraries, which make their options known when they need them.
    """
    known = {group.name: set(conf[group.name]) for group, _ in (list_opts() if policies else FIXED)}
    found = []
    for file in _files(conf):
        sections: dict[str, dict[str, object]] = {}
        cfg.ConfigParser(str(file), sections).parse()
        for group, values in sections.items():
            if group.lower() in known:
                options = known[group.lower()]
                wrong = [name for name in values if name.replace("-", "_") not in options]
                found += [f"{file}: [{group}] {name}: no such option{_meant(name, options)}" for name in wrong]
            elif meant := _meant(group, known):
                found.append(f"{file}: [{group}]: no such group{meant}")
    return found


def _files(conf: cfg.ConfigOpts) -> Iterator[Path]:
    yield from map(Path, conf.config_file)
    for directory in conf.config_dir:
        yield from sorted(Path(directory).glob("*.conf"))


def _meant(name: str, known: Iterable[str]) -> str:
    return "".join(f"; do you mean {each}?" for each in get_close_matches(name, known, n=1, cutoff=0.85))
