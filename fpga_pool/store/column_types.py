"""Column types with the same meaning in SQLite, MariaDB and PostgreSQL."""

import json
import math
from enum import StrEnum
from itertools import starmap
from operator import attrgetter
from typing import Any

from sqlalchemy import BigInteger, Dialect, Double, Enum, Integer, LargeBinary, Text
from sqlalchemy.dialects.mysql import MEDIUMBLOB, MEDIUMTEXT
from sqlalchemy.types import TypeDecorator

from fpga_pool.model.codec import from_text, to_text

#: Text that may exceed the 64 KiB of MariaDB's TEXT.
LongText = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")

#: A part of a file, of a few MiB at most.
Bytes = LargeBinary().with_variant(MEDIUMBLOB(), "mysql", "mariadb")

#: An autoincrement key; SQLite supports these only as INTEGER, which has 64 bits there.
Position = BigInteger().with_variant(Integer(), "sqlite")

_compact = json.JSONEncoder(separators=(",", ":")).encode
_read_json = json.JSONDecoder().decode


def enum_column(enum: type[StrEnum]) -> Enum:
    """Return a type that stores an enum by value as plain text, so that a new member needs no migration."""
    return Enum(enum, native_enum=False, length=32, values_callable=list)


class Limit(TypeDecorator[float]):
    """A rate limit; infinity (no limit) is NULL, because MariaDB cannot store it."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """Convert infinity to NULL."""
        return None if value == math.inf else value

    def process_result_value(self, value: float | None, dialect: Dialect) -> float:
        """Convert NULL to infinity."""
        return math.inf if value is None else value


class Records(TypeDecorator[tuple[Any, ...]]):
    """A tuple of records (flat dataclasses or messages) as a JSON list of lists, one per record.

    Empty strings at the end of a record are left out; they must be the defaults of their fields.
    """

    impl = LongText
    cache_ok = True

    def __init__(self, record: type, *names: str) -> None:
        super().__init__()
        self.record = record
        self.names = names
        self._values = attrgetter(*names)

    def process_bind_param(self, value: tuple[Any, ...] | None, dialect: Dialect) -> str:
        """Write the records."""
        return _compact([_shortest(self._values(record)) for record in value]) if value else "[]"

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[Any, ...]:
        """Read the records."""
        if not value or value == "[]":
            return ()
        return tuple(starmap(self.record, _read_json(value)))


def _shortest(values: tuple[Any, ...]) -> tuple[Any, ...]:
    while values[-1] == "":
        values = values[:-1]
    return values


class Texts(TypeDecorator[tuple[str, ...]]):
    """A tuple of texts as a JSON list."""

    impl = LongText
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str:
        """Write the texts."""
        return _compact(value) if value else "[]"

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        """Read the texts."""
        return () if not value or value == "[]" else tuple(_read_json(value))


class JsonText(TypeDecorator[Any]):
    """A message of a given type, as JSON."""

    impl = LongText
    cache_ok = True

    def __init__(self, wanted: Any) -> None:
        super().__init__()
        self.wanted = wanted

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Write the message."""
        return to_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Read the message; InvalidInput if this version cannot read it."""
        return from_text(self.wanted, value)


class PlainData(TypeDecorator[Any]):
    """Plain data as JSON."""

    impl = LongText
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Write the data."""
        return json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Read the data."""
        return json.loads(value or "null")
