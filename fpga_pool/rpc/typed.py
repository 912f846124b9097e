"""Calls from outside, read and answered by the signature of the method that takes them."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, get_type_hints

import msgspec

from fpga_pool.model.codec import read, to_plain

T = TypeVar("T")


def typed(method: Callable[..., T]) -> Callable[..., Any]:
    """Return a method of an endpoint that is called with plain values, and answers with some.

    Its arguments, but for the context, are read as its annotations say: InvalidInput where one is unknown, of no such
    value, or missing without a default.
    """
    hints = get_type_hints(method, include_extras=True)
    parameters = list(signature(method).parameters.values())[2:]  # without the endpoint and the context
    fields: list[Any] = [
        (name, hint) if parameter.default is Parameter.empty else (name, hint, parameter.default)
        for parameter in parameters
        for name, hint in [(parameter.name, hints.get(parameter.name, Any))]
    ]
    arguments = msgspec.defstruct(method.__name__, fields, kw_only=True, forbid_unknown_fields=True)

    @wraps(method)
    def call(endpoint: object, context: object, **given: Any) -> Any:
        return to_plain(method(endpoint, context, **msgspec.structs.asdict(read(arguments, given, method.__name__))))

    return call
