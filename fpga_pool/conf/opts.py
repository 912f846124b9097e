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

#: Maximum of options in seconds: the longest time that threads can wait.
LONGEST_S = 10**9
#: Options of libraries that name CA certificates, and other files, which the libraries do not check before use.
_AUTHORITIES = ("cafile", "memcache_tls_cafile", "ssl_ca_file")
_FILES = (
    *("certfile", "keyfile"),
    *("memcache_tls_certfile", "memcache_tls_keyfile"),
    *("ssl_cert_file", "ssl_key_file"),
)
#: Minimum of library options whose types have none; it is 0 for options not listed here.  The libraries themselves use
#: -1 for none or unlimited; where the minimum is 1, nothing would be done with 0.
_LEAST = {
    **dict.fromkeys(("connection_recycle_time", "max_overflow", "max_retries", "retry", "token_cache_time"), -1),
    **dict.fromkeys(("executor_thread_pool_size", "file_event_handler_interval", "heartbeat_rate"), 1),
    **dict.fromkeys(("http_connect_timeout", "memcache_pool_maxsize", "memcache_pool_socket_timeout"), 1),
    "rpc_response_timeout": 1,
}
#: Suffixes of the names of options in seconds.
_SECONDS = ("_s", "_timeout", "_interval", "_ttl", "_time", "_threshold")

Groups = list[tuple[cfg.OptGroup, Sequence[cfg.Opt]]]
#: The groups that do not depend on the installed policies.
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
#: Names of the groups whose options have explicit bounds.
_OURS = {group.name for group, _ in FIXED}


def list_opts() -> Groups:
    """Return every group with its options, in the form that oslo-config-generator expects."""
    return [*FIXED, *policy_opts()]


def register_opts(conf: cfg.ConfigOpts, *, policies: bool = True) -> None:
    """Register the options with `conf`; those of policies cost the time and memory to load every policy."""
    for group, options in list_opts() if policies else FIXED:
        # A separate group object for each `conf`, because oslo.config stores overridden values in the group.
        conf.register_group(cfg.OptGroup(group.name, group.title, group.help))
        conf.register_opts(options, group.name)


def read_files(conf: cfg.ConfigOpts, program: str, argv: Sequence[str], description: str | None) -> None:
    """Read the command line and the files that it names; InvalidInput names a file that cannot be read."""
    try:
        conf(list(argv), project="fpga_pool", prog=program, version=version("fpga_pool"), description=description)
    except OSError as error:
        raise InvalidInput(f"{error.filename}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"a configuration file is no UTF-8: {error}") from None
    except SystemExit as end:  # with 1 for a wrong value, with 2 for an unknown option
        raise SystemExit(2 if end.code else 0) from None


def check_values(conf: cfg.ConfigOpts) -> None:
    """Read every option that is registered with `conf`, because oslo.config detects a wrong value only then.

    InvalidInput names the first wrong option, and what is expected.
    """
    _check_values(conf, "DEFAULT", conf)
    scheduler.check_default_policy(conf)


def check_options(conf: cfg.ConfigOpts, group: str | None, options: Iterable[cfg.Opt]) -> None:
    """Register options of a library with `conf`, and check their values as `check_values` does."""
    names = []
    for option in options:
        with suppress(cfg.DuplicateOptError):  # the library has registered it, with another default
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
            # DevStack, for example, sets Keystone's cafile even if TLS is not used, and the file does not exist then.
            if name != "cafile" or not _written(conf, group, "auth_url").startswith("http:"):
                trusted_authorities(f"[{group}] {name}", value)
        elif value and name in _FILES:
            present_file(f"[{group}] {name}", value)
        elif isinstance(value, int | float):
            has_bounds = group in _OURS or group.startswith(GROUP_PREFIX)
            _check_number(f"[{group}] {name}", name, value, -math.inf if has_bounds else _LEAST.get(name, 0))


def _expected(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """Return a description of the values that an option accepts; "" if the error of oslo.config has one."""
    # There is no public way to get a registered option.
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
    """Raise InvalidInput if a number is not finite, is below `least`, or is a time too long for threads to wait."""
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
    """Report a wrong value that a library finds in the block in the same way as `check_values`."""
    try:
        yield
    except cfg.ConfigSourceValueError:
        check_values(conf)
        raise


def unknown_names(conf: cfg.ConfigOpts, *, policies: bool = True) -> list[str]:
    """Return the unknown names in the files of `conf` that are in our groups, or are misspelled names of our groups."""
    return unknown_among(conf, {group.name: set(conf[group.name]) for group, _ in (list_opts() if policies else FIXED)})


def check_names(conf: cfg.ConfigOpts, *, policies: bool = True) -> None:
    """Raise InvalidInput if a file of `conf` has an unknown name (see `unknown_names`), which would be ignored."""
    if unknown := unknown_names(conf, policies=policies):
        raise InvalidInput(unknown[0] if len(unknown) == 1 else f"{unknown[0]} ({len(unknown) - 1} more like this)")


def _written(conf: cfg.ConfigOpts, group: str, option: str) -> str:
    """Return the value of an option in the last file that contains it; "" if none does."""
    given = [sections[group][option][-1] for _, sections in files_of(conf) if option in sections.get(group, {})]
    return given[-1] if given else ""
