"""Calls from outside, read and answered by the signature of the method that takes them."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

from fpga_pool.model.codec import read, to_plain

T = TypeVar("T")

#: Bounds of arguments whose types have none of their own: of names, reasons and ids; of epochs, attempts and limits.
BOUNDS: dict[Any, Any] = {
    str: Annotated[str, Meta(max_length=255)],
    str | None: Annotated[str, Meta(max_length=255)] | None,
    int: Annotated[int, Meta(ge=0, le=2**63 - 1)],
    float: Annotated[float, Meta(ge=0, le=1e9)],
}


def typed(method: Callable[..., T]) -> Callable[..., Any]:
    """Return a method of an endpoint that is called with plain values, and answers with some.

    Its arguments, but for the context, are read as its annotations say: InvalidInput where one is unknown, of no such
    value, out of bounds (`BOUNDS`, where its annotation has none), or missing without a default.
    """
    hints = get_type_hints(method, include_extras=True)
    parameters = list(signature(method).parameters.values())[2:]  # without the endpoint and the context
    fields: list[Any] = [
        (name, hint) if parameter.default is Parameter.empty else (name, hint, parameter.default)
        for parameter in parameters
        for name in [parameter.name]
        for hint in [BOUNDS.get(hints.get(name, Any), hints.get(name, Any))]
    ]
    arguments = msgspec.defstruct(method.__name__, fields, kw_only=True, forbid_unknown_fields=True)

    @wraps(method)
    def call(endpoint: object, context: object, **given: Any) -> Any:
        return to_plain(method(endpoint, context, **msgspec.structs.asdict(read(arguments, given, method.__name__))))

    return call
