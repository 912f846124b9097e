"""Directive ``.. rest-api:: PATH``: the operations below a path and the fields that they take and return.

Everything is read from the OpenAPI document that the API serves, so the page has no field that the API has not.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fpga_pool.api.openapi import openapi

Schema = Mapping[str, Any]
Rows = list[tuple[str, ...]]

_REFERENCE = "#/components/schemas/"


def operations(path: str) -> Rows:
    """Return a row for each operation on a path and below it: request, parameters, body, response, what it does."""
    return [
        (
            f"``{method.upper()} {where}``",
            ", ".join(f"``{one['name']}``" for one in operation["parameters"] if one["in"] == "query"),
            _name(_content(operation["requestBody"])) if "requestBody" in operation else "",
            _response(operation),
            operation["summary"],
        )
        for where, method, operation in _below(path)
    ]


def fields(path: str) -> dict[str, Rows]:
    """Return, for each class that the operations below a path take or return, its fields: name, type, presence."""
    found: dict[str, Rows] = {}
    left = [
        name
        for _, _, operation in _below(path)
        for schema in [*_bodies(operation), *(_properties(_answer(operation)).values())]
        for name in _names(schema)
    ]
    while left:
        name = left.pop(0)
        if name not in found and "properties" in _schema(name):
            schema = _schema(name)
            found[name] = [
                (f"``{key}``", _type(one), _presence(key, one, schema)) for key, one in schema["properties"].items()
            ]
            left += [inner for one in schema["properties"].values() for inner in _names(one)]
    return found


def _below(path: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for where, methods in openapi()["paths"].items():
        if where == path or where.startswith(f"{path}/"):
            for method, operation in methods.items():
                yield where, method, operation


def _bodies(operation: Mapping[str, Any]) -> list[Schema]:
    return [_content(operation["requestBody"])] if "requestBody" in operation else []


def _answer(operation: Mapping[str, Any]) -> Schema:
    (status,) = (status for status in operation["responses"] if status.startswith("2"))
    return _content(operation["responses"][status])


def _response(operation: Mapping[str, Any]) -> str:
    (status,) = (status for status in operation["responses"] if status.startswith("2"))
    keys = ", ".join(f"``{key}``: {_type(one)}" for key, one in _properties(_answer(operation)).items())
    return f"{status}; {keys}"


def _content(part: Mapping[str, Any]) -> Schema:
    found: Schema = part["content"]["application/json"]["schema"]
    return found


def _properties(schema: Schema) -> Mapping[str, Schema]:
    found: Mapping[str, Schema] = _schema(_name(schema))["properties"]
    return found


def _schema(name: str) -> Schema:
    found: Schema = openapi()["components"]["schemas"][name]
    return found


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).removeprefix(_REFERENCE)


def _names(schema: Schema) -> list[str]:
    """Return the classes that a schema refers to."""
    if "$ref" in schema:
        return [_name(schema)]
    inner = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]
    return [name for one in inner for name in _names(one)]


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = _name(schema)
        return f"one of {', '.join(_schema(name)['enum'])}" if "enum" in _schema(name) else name
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "description" in schema:
        return str(schema["description"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    return {"date-time": "point in time"}.get(schema.get("format", ""), str(schema.get("type", "any value")))


def _presence(key: str, field: Schema, schema: Schema) -> str:
    if key in schema.get("required", ()):
        return "required" if schema.get("additionalProperties") is False else "always"
    return f"optional; default ``{field['default']!r}``" if field.get("default") not in (None, "") else "optional"


def _table(head: tuple[str, ...], widths: str, rows: Rows) -> list[str]:
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for cells in [head, *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(cells)]
    return [*lines, ""]


class RestApi(SphinxDirective):
    """Renders the tables of one resource."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the tables, written as reStructuredText and parsed."""
        (path,) = self.arguments
        head = ("Request", "Query", "Body", "Response", "Meaning")
        lines = _table(head, "26 14 12 24 24", operations(path))
        for name, rows in fields(path).items():
            lines += [f"**{name}**", "", *_table(("Field", "Type", "Present"), "28 48 24", rows)]
        container = nodes.Element()
        self.state.nested_parse(StringList(lines, source="rest-api"), self.content_offset, container)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("rest-api", RestApi)
    return {"parallel_read_safe": True}
