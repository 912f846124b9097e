"""The node policies by name, and the texts that name one with its parameters."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from fpga_pool.core.cluster.late import SlowdownUnit
from fpga_pool.core.cluster.nodes import EctUnit, NodePolicy, PatsUnit, RandomUnit
from fpga_pool.core.learned.iawp import Iawp
from fpga_pool.core.policy import Parametrised

#: By name: called with `corun`, `admission` and parameters of its own, a frozen dataclass `Params` where it has some.
NODE_POLICIES: Mapping[str, Callable[..., NodePolicy]] = {
    "ect": EctUnit,
    "iawp": Iawp,
    "pats": PatsUnit,
    "random": RandomUnit,
    "slowdown": SlowdownUnit,
}
_FLAGS: Mapping[str, bool] = {"true": True, "false": False}


def node_policy(text: str, *, corun: bool, admission: bool) -> NodePolicy:
    """Return the policy that a text names: NAME, or NAME:PARAMETER=VALUE,PARAMETER=VALUE.

    ValueError names what there is, or what is wrong.
    """
    name, colon, listed = text.partition(":")
    if name not in NODE_POLICIES:
        raise ValueError(f"node: expected one of {', '.join(NODE_POLICIES)}, got {name!r}")
    made = NODE_POLICIES[name]
    if not colon:
        return made(corun=corun, admission=admission)
    params: Any = made.Params if isinstance(made, Parametrised) else None
    defaults: dict[str, Any] = {field.name: field.default for field in fields(params)} if params else {}
    values = {}
    for parameter in listed.split(","):
        key, _, value = parameter.partition("=")
        if key not in defaults:
            raise ValueError(f"node: {name}: {key!r}: no such parameter; available: {', '.join(defaults) or 'none'}")
        kind: Any = type(defaults[key])
        try:
            values[key] = _FLAGS[value] if kind is bool else kind(value)
        except (KeyError, ValueError):
            raise ValueError(f"node: {name}: {key}: expected a value of type {kind.__name__}, got {value!r}") from None
    return made(corun=corun, admission=admission, params=params(**values))
