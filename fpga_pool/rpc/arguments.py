"""Arguments of calls from outside, held against the signature of the method before it sees them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fpga_pool.model.exceptions import InvalidInput

T = TypeVar("T")

#: What JSON has for them.
_JSON: dict[Any, tuple[type, ...]] = {
    Mapping: (dict,),
    Sequence: (list, tuple),
    list: (list, tuple),
    float: (float, int),
}


def checked(method: Callable[..., T]) -> Callable[..., T]:
    """Return a method of an endpoint that raises InvalidInput where an argument is missing, unknown or of no such type.

    What is inside of lists and objects is left to the method.  Only an argument that has a default may be missing.
    """

    @wraps(method)
    def call(endpoint: object, context: object, **arguments: Any) -> T:
        _check(method, arguments)
        return method(endpoint, context, **arguments)

    return call


def _check(method: Callable[..., Any], arguments: Mapping[str, object]) -> None:
    expected, required = _expected(method)
    for problem, names in (
        ("unknown argument", arguments.keys() - expected),
        ("missing", required - arguments.keys()),
    ):
        if names:
            raise InvalidInput(f"{method.__name__}.{min(names)}: {problem}")
    for name, value in arguments.items():
        if not any(_is(value, option) for option in expected[name]):
            raise InvalidInput(f"{method.__name__}.{name}: {value!r:.200} is of another type than expected")


@cache
def _expected(method: Callable[..., Any]) -> tuple[dict[str, tuple[type, ...]], set[str]]:
    """Return the types that each argument may have as JSON, and the names of those that have no default.

    The first two arguments are the endpoint and the context.
    """
    hints = get_type_hints(method)
    parameters = list(inspect.signature(method).parameters.values())[2:]
    types = {parameter.name: _types(hints.get(parameter.name, object)) for parameter in parameters}
    return types, {parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty}


def _types(hint: Any) -> tuple[type, ...]:
    if isinstance(hint, UnionType):
        return tuple(kind for option in get_args(hint) for kind in _types(option))
    origin = get_origin(hint) or hint
    return _JSON.get(origin, (origin,))


def _is(value: object, kind: type) -> bool:
    """Say whether a value is of a type; true and false are no numbers."""
    return isinstance(value, kind) and (kind in (bool, object) or not isinstance(value, bool))
