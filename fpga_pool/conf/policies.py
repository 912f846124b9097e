"""Scheduling policies by name, from the entry points of installed packages, and their parameters, [policy_NAME]."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields
from functools import cache
from typing import Any

from oslo_config import cfg, types
from stevedore import driver, exception
from stevedore.named import NamedExtensionManager

from fpga_pool.core.policy import GROUPS, Parametrised, Preparing, Proving
from fpga_pool.model.exceptions import InvalidInput

#: Prefix of the names of option groups with the parameters of a policy.
GROUP_PREFIX = "policy_"

_FLAGS: Mapping[str, bool] = {"true": True, "false": False}
_OPTIONS: dict[type, type[cfg.Opt]] = {bool: cfg.BoolOpt, int: cfg.IntOpt, float: cfg.FloatOpt, str: cfg.StrOpt}


def policy_names(group: str) -> list[str]:
    """Return the sorted names of the policies of a group (a key of `fpga_pool.core.policy.GROUPS`); none is loaded."""
    return list(_installed()[group])


class PolicyName(types.String):
    """The type of an option whose value is the name of an installed policy of given groups; no policy is loaded."""

    def __init__(self, *groups: str) -> None:
        super().__init__(type_name="policy name")
        self.groups = groups

    def __call__(self, value: object) -> str:
        """Return the name; if it is unknown, ValueError lists the installed policies."""
        known = [name for group in self.groups for name in policy_names(group)]
        if value not in known:
            kinds = " or ".join(self.groups)
            raise ValueError(f"no such {kinds} policy {value!r}; available: {', '.join(known) or 'none'}")
        return str(value)


def load_policy(group: str, name: str, conf: cfg.ConfigOpts | None = None) -> Any:
    """Return the policy with that name, with the parameters in `conf`, or without `conf` with the default ones.

    InvalidInput lists the available policies, or names the parameter that is wrong.
    """
    policy = _policy_class(group, name)
    params = _params(policy)
    if params is None or conf is None:
        return policy()
    values = conf[_group_name(name)]
    try:
        return policy(params(**{field.name: values[field.name] for field in fields(params)}))
    except ValueError as error:
        raise InvalidInput(f"[{_group_name(name)}] {error}") from error


def compile_loops(group: str, name: str) -> None:
    """Compile the loops that the decisions of a policy need, unless they are in the cache."""
    policy = load_policy(group, name)
    if isinstance(policy, Preparing):
        policy.prepare()


def tuned_policy(group: str, name: str, parameters: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Any:
    """Return the policy with that name, with some parameters given as text, some as values, the others by default.

    InvalidInput lists the available policies or parameters, or names the value that is wrong.
    """
    defaults = _defaults(_policy_class(group, name))
    values: dict[str, Any] = dict(given or {})
    for parameter, text in parameters.items():
        kind: Any = type(defaults.get(parameter, ""))
        try:
            values[parameter] = _FLAGS[text] if kind is bool else kind(text)
        except (KeyError, ValueError):
            raise InvalidInput(f"{name}: {parameter}: expected a value of type {kind.__name__}, got {text!r}") from None
    return policy_with(group, name, values)


def policy_with(group: str, name: str, values: Mapping[str, Any]) -> Any:
    """Return the policy with that name, with some parameters given, the others by default.

    InvalidInput lists the available policies or parameters, or names the value that is wrong.
    """
    policy = _policy_class(group, name)
    defaults = _defaults(policy)
    for parameter, value in values.items():
        if parameter not in defaults:
            raise InvalidInput(f"{name}: {parameter}: no such parameter; available: {', '.join(defaults) or 'none'}")
        kind = type(defaults[parameter])
        if type(value) is not kind and (kind, type(value)) != (float, int):
            raise InvalidInput(f"{name}: {parameter}: expected a value of type {kind.__name__}, got {value!r}")
    try:
        return policy(policy.Params(**values)) if values else policy()
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}") from error


def _defaults(policy: Any) -> dict[str, Any]:
    """Return the parameters of a policy with their defaults."""
    return {field.name: field.default for field in fields(policy.Params)} if isinstance(policy, Parametrised) else {}


def policy_as(group: str, text: str) -> Any:
    """Return the policy that a text specifies: NAME, or NAME:PARAMETER=VALUE,PARAMETER=VALUE to change parameters.

    InvalidInput lists what is available, or names what is wrong.
    """
    name, colon, listed = text.partition(":")
    parameters = dict(parameter.partition("=")[::2] for parameter in listed.split(",")) if colon else {}
    if colon and not all(parameter and value for parameter, value in parameters.items()):
        raise InvalidInput(f"policy {text!r}: expected NAME or NAME:PARAMETER=VALUE,PARAMETER=VALUE")
    return tuned_policy(group, name, parameters)


def is_proving(group: str, name: str) -> bool:
    """Return whether a policy with that name exists, and searches until its decision is proven optimal."""
    return name in policy_names(group) and issubclass(_policy_class(group, name), Proving)


def policy_opts() -> Iterator[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Yield the option group of every policy with parameters: the fields of its `Params`, with their help as metadata.

    Policies with one name in several families share their parameters.  Those of the cluster family have no options,
    because only the simulator uses them.
    """
    families: dict[str, list[str]] = defaultdict(list)
    for group in (group for group in GROUPS if group != "cluster"):
        for name in policy_names(group):
            families[name].append(group)
    for name, groups in families.items():
        params = _params(_policy_class(groups[0], name))
        if params is not None:
            title = f"Parameters of the {' and '.join(groups)} policy {name}"
            yield cfg.OptGroup(_group_name(name), title=title), [_option(field) for field in fields(params)]


@cache
def _installed() -> Mapping[str, Sequence[str]]:
    """Return the names of the installed policies, by group."""
    return {
        group: sorted(set(NamedExtensionManager(namespace, ()).entry_points_names()))
        for group, namespace in GROUPS.items()
    }


@cache
def _policy_class(group: str, name: str) -> Any:
    known = policy_names(group)
    if name not in known:
        raise InvalidInput(f"policy {name!r}: no such {group} policy; available: {', '.join(known) or 'none'}")
    try:
        return driver.DriverManager(GROUPS[group], name).driver
    except exception.MultipleMatches:
        raise InvalidInput(f"policy {name!r}: more than one {group} policy of this name is installed") from None


def _params(policy: Any) -> type[Any] | None:
    return policy.Params if isinstance(policy, Parametrised) else None


def _group_name(policy: str) -> str:
    return f"{GROUP_PREFIX}{policy}"


def _option(field: Field[Any]) -> cfg.Opt:
    said = {name: value for name, value in field.metadata.items() if name not in ("above", "below")}
    return _OPTIONS[type(field.default)](field.name, default=field.default, **said)
