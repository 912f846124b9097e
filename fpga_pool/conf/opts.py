"""All options, group by group: for the services, and for the sample configuration."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any

from oslo_config import cfg, types

from fpga_pool.conf import agent, catalogue, drivers, scheduler, services
from fpga_pool.conf.catalogue import present_file, trusted_authorities
from fpga_pool.conf.names import files_of, unknown_among
from fpga_pool.conf.policies import GROUP_PREFIX, policy_opts
from fpga_pool.model.exceptions import InvalidInput

#: Of an option's seconds: what threads can wait for.
LONGEST_S = 10**9
#: Options of libraries, by which these find a file only when they use it: certificates of authorities, and other files.
_AUTHORITIES = ("cafile", "memcache_tls_cafile", "ssl_ca_file")
_FILES = (
    *("certfile", "keyfile"),
    *("memcache_tls_certfile", "memcache_tls_keyfile"),
    *("ssl_cert_file", "ssl_key_file"),
)
#: Least numbers of options of libraries whose types have no bound; that of all others is 0.  -1 is what they themselves
#: take for none, or no end; with 0 nothing would be done.
_LEAST = {
    **dict.fromkeys(("connection_recycle_time", "max_overflow", "max_retries", "retry", "token_cache_time"), -1),
    **dict.fromkeys(("executor_thread_pool_size", "file_event_handler_interval", "heartbeat_rate"), 1),
    **dict.fromkeys(("http_connect_timeout", "memcache_pool_maxsize", "memcache_pool_socket_timeout"), 1),
    "rpc_response_timeout": 1,
}
#: How options of seconds are called.
_SECONDS = ("_s", "_timeout", "_interval", "_ttl", "_time", "_threshold")

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
#: Their numbers have bounds of their own.
_OURS = {group.name for group, _ in FIXED}


def list_opts() -> Groups:
    """Return every group with its options, as oslo-config-generator wants them."""
    return [*FIXED, *policy_opts()]


def register_opts(conf: cfg.ConfigOpts, *, policies: bool = True) -> None:
    """Make the options known to `conf`; those of policies cost the time and memory to load every policy."""
    for group, options in list_opts() if policies else FIXED:
        # One of its own: what is overridden in one configuration is kept in the group.
        conf.register_group(cfg.OptGroup(group.name, group.title, group.help))
        conf.register_opts(options, group.name)


def read_files(conf: cfg.ConfigOpts, program: str, argv: Sequence[str], description: str | None) -> None:
    """Read the command line and the files that it names; InvalidInput names one that cannot be read."""
    try:
        conf(list(argv), project="fpga_pool", prog=program, version=version("fpga_pool"), description=description)
    except OSError as error:
        raise InvalidInput(f"{error.filename}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"a configuration file is no UTF-8: {error}") from None
    except SystemExit as end:  # with 1 for a wrong value, with 2 for an unknown option
        raise SystemExit(2 if end.code else 0) from None


def check_values(conf: cfg.ConfigOpts) -> None:
    """Read every option that is known to `conf`, because oslo.config finds a wrong value only then.

    InvalidInput names the first, and what is right.
    """
    _check_values(conf, "DEFAULT", conf)
    scheduler.check_default_policy(conf)


def check_options(conf: cfg.ConfigOpts, group: str | None, options: Iterable[cfg.Opt]) -> None:
    """Make options of a library known to `conf`, and read them as `check_values` does."""
    names = []
    for option in options:
        with suppress(cfg.DuplicateOptError):  # the library has made it known, with another default
            conf.register_opt(option, group)
        names.append(option.dest)
    _check_values(conf, group or "DEFAULT", conf if group is None else conf[group], names)


def _check_values(
    conf: cfg.ConfigOpts, group: str, values: Mapping[str, Any], names: Iterable[str] | None = None
) -> None:
    for name in values if names is None else names:
        try:
            value = values[name]
        except cfg.Error as error:
            reason = str(error).rpartition(" is not valid: ")[2]
            found, expected = _written(conf, group, name), _expected(conf, group, name)
            if expected and found:
                raise InvalidInput(f"[{group}] {name}: expected {expected}, found {found!r}") from None
            more = f", found {found!r}" if found and found not in reason else ""
            raise InvalidInput(f"[{group}] {name}: {reason}{more}") from None
        if isinstance(value, cfg.ConfigOpts.GroupAttr):
            _check_values(conf, name, value)
        elif value and name in _AUTHORITIES:
            # DevStack, for one, names Keystone's authorities where nothing speaks TLS, and they are not there.
            if name != "cafile" or not _written(conf, group, "auth_url").startswith("http:"):
                trusted_authorities(f"[{group}] {name}", value)
        elif value and name in _FILES:
            present_file(f"[{group}] {name}", value)
        elif isinstance(value, int | float):
            has_bounds = group in _OURS or group.startswith(GROUP_PREFIX)
            _check_number(f"[{group}] {name}", name, value, -math.inf if has_bounds else _LEAST.get(name, 0))


def _expected(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """Return what the type of an option takes; "" where oslo.config says so itself."""
    # There is no public way to an option that is known.
    kind = conf._get_opt_info(name, None if group == "DEFAULT" else group)["opt"].type  # noqa: SLF001
    if isinstance(kind, types.Boolean):
        return "true or false"
    if not isinstance(kind, types.Number) or kind.choices:
        return ""
    of_seconds = name.endswith(_SECONDS) and not name.endswith("_per_s")
    number = f"a {'whole ' if isinstance(kind, types.Integer) else ''}number{' of seconds' if of_seconds else ''}"
    if kind.min is not None and kind.max is not None:
        return f"{number} from {kind.min} to {kind.max}"
    bounds = [f"at least {kind.min}"] if kind.min is not None else []
    bounds += [f"at most {kind.max}"] if kind.max is not None else []
    return ", ".join([number, *bounds])


def _check_number(option: str, name: str, value: float, least: float) -> None:
    """Raise InvalidInput where a number is below the `least`, or no time that threads can wait for."""
    if not math.isfinite(value):
        raise InvalidInput(f"{option}: expected a finite number, found {value}")
    is_time = name.endswith(_SECONDS) and not name.endswith("_per_s")
    if value < least:
        wanted = f"{least} to {LONGEST_S} seconds" if is_time else f"at least {least}"
        raise InvalidInput(f"{option}: expected {wanted}, found {value}")
    if is_time and value > LONGEST_S:
        raise InvalidInput(f"{option}: expected at most {LONGEST_S} seconds, found {value}")


@contextmanager
def wrong_values_named(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Have a wrong value that a library comes upon named as `check_values` names it."""
    try:
        yield
    except cfg.ConfigSourceValueError:
        check_values(conf)
        raise


def unknown_names(conf: cfg.ConfigOpts, *, policies: bool = True) -> list[str]:
    """Return what no option reads in the files of `conf`, as far as it is in our groups, or meant to be."""
    return unknown_among(conf, {group.name: set(conf[group.name]) for group, _ in (list_opts() if policies else FIXED)})


def check_names(conf: cfg.ConfigOpts, *, policies: bool = True) -> None:
    """Raise InvalidInput where a file of `conf` has a name in our groups that no option has: it would be ignored."""
    if unknown := unknown_names(conf, policies=policies):
        raise InvalidInput(unknown[0] if len(unknown) == 1 else f"{unknown[0]} ({len(unknown) - 1} more like this)")


def _written(conf: cfg.ConfigOpts, group: str, option: str) -> str:
    """Return what the last file has for an option; "" where none has it."""
    given = [sections[group][option][-1] for _, sections in files_of(conf) if option in sections.get(group, {})]
    return given[-1] if given else ""
