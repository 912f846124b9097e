"""Tables of a scenario as frozen dataclasses: their keys, the values that each key accepts, and the defaults."""

import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.tasks import TaskShape

TableT = TypeVar("TableT")

#: Names become parts of slot names, which are separated by "/", and of messages.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
#: Limit of the number of objects of each kind, so that a wrong number does not exhaust the memory.
MOST_THINGS = 1_000_000
#: Limit of numbers; up to it floats represent integers exactly.
_MOST = 2**53


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of values that a key accepts.

    `read` returns the converted value; it raises ValueError, TypeError or OverflowError for a value that is refused.
    """

    expected: str
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """A number, or a range from which each job, share, gang or instance draws a value uniformly."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a real number from the range."""
        return self.low if self.low == self.high else float(rng.uniform(self.low, self.high))

    def draw_whole(self, rng: np.random.Generator) -> int:
        """Draw an integer from the range, both ends included."""
        return int(self.low) if self.low == self.high else int(rng.integers(int(self.low), int(self.high) + 1))


FORMAT_VERSION = 1

_TOO_DEEP = "nested too deeply; a scenario has tables of values, and lists of names or numbers"


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a scenario file; raises InvalidInput, which names the file and the error."""
    with naming(path):
        try:
            content = tomllib.loads(path.read_bytes().decode())
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise InvalidInput(f"line {line}: not UTF-8 text") from None
        except ValueError as error:  # also raised for an integer with thousands of digits
            raise InvalidInput(str(error)) from None
        version = content.pop("format_version", FORMAT_VERSION)
        if version != FORMAT_VERSION or isinstance(version, bool):
            raise InvalidInput(f"format_version: expected {FORMAT_VERSION}, found {shown(version)}")
        return content


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Prefix each InvalidInput with the name of the file."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    except RecursionError:  # the value is nested too deeply to be read or shown in a message
        raise InvalidInput(f"{path}: {_TOO_DEEP}") from None


def require_known(name: str, known: Collection[str], place: str, what: str) -> None:
    """Raise InvalidInput, which lists the known names, if a name is unknown."""
    if name not in known:
        listed = ", ".join(sorted(known)[:20]) + (", ..." if len(known) > 20 else "")
        raise InvalidInput(f"{place}: no {what} {name!r}; available: {listed or 'none'}")


def key(kind: Kind, default: Any = MISSING, *, shown_default: str = "") -> Any:
    """Return a dataclass field for a key of a table; without a default the key is required.

    `shown_default` replaces the default in the documentation.
    """
    metadata = {"kind": kind, "shown_default": shown_default}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def read_table(table: type[TableT], content: Any, where: str, /, **known: Any) -> TableT:
    """Return a table as its dataclass; raises InvalidInput, which names the table, the key and the expected value.

    `known` are fields that are not keys of the content, such as the name of a table.
    """
    keys: dict[str, Field[Any]] = {
        item.name: item for item in fields(table) if "kind" in item.metadata  # type: ignore[arg-type]
    }  # fmt: skip
    if not isinstance(content, Mapping):
        raise InvalidInput(f"{where}: expected a table, found {shown(content)}")
    for name in content:
        if name not in keys:
            raise InvalidInput(f"{where}: {name}: unknown key; keys are {', '.join(keys)}")
    values = dict(known)
    for name, item in keys.items():
        if name in content:
            values[name] = read_value(item.metadata["kind"], content[name], f"{where}: {name}")
        elif item.default is MISSING:
            raise InvalidInput(f"{where}: {name}: missing; expected {item.metadata['kind'].expected}")
    return table(**values)


def read_value(kind: Kind, value: Any, place: str) -> Any:
    """Return a value as converted by its kind; raises InvalidInput, which names the place and the expected value."""
    try:
        return kind.read(value)
    except (ValueError, TypeError, OverflowError):
        raise InvalidInput(f"{place}: expected {kind.expected}, found {shown(value)}") from None


def shown(value: Any) -> str:
    """Return the text of a value for a message, at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer too long for decimal text, which was written as hexadecimal
        return "a number with too many digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _number(accepts: Callable[[float], bool]) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError
        if not math.isfinite(value) or not abs(value) <= _MOST or not accepts(value):
            raise ValueError
        return float(value)

    return read


def _whole(least: int, most: int = _MOST) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError
        return value

    return read


def _spread(read_one: Callable[[Any], float]) -> Callable[[Any], Spread]:
    def read(value: Any) -> Spread:
        low, high = value if isinstance(value, list) else (value, value)
        low, high = read_one(low), read_one(high)
        if low > high:
            raise ValueError
        return Spread(low, high)

    return read


def _text(accepts: Callable[[str], object]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not accepts(value):
            raise ValueError
        return value

    return read


def whole(least: int, most: int = MOST_THINGS) -> Kind:
    """Return a kind that accepts an integer within limits."""
    return Kind(f"a whole number, {least} to {most}", _whole(least, most))


def seconds(least: float) -> Kind:
    """Return a kind that accepts a duration of at least `least` seconds."""
    return Kind(f"finite seconds, {least:g} or more", _number(lambda value: value >= least))


def number(least: float, most: float) -> Kind:
    """Return a kind that accepts a number within limits."""
    return Kind(f"a number, {least:g} to {most:g}", _number(lambda value: least <= value <= most))


def share(least: float) -> Kind:
    """Return a kind that accepts a fraction from `least` to 1."""
    return number(least, 1)


def _is_plain(text: str) -> bool:
    return bool(text) and not any(character < " " or character == "\x7f" for character in text)


def choice(*words: str) -> Kind:
    """Return a kind that accepts these words."""
    return Kind(f"{', '.join(words[:-1])} or {words[-1]}", _text(words.__contains__))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _names(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise ValueError
    return tuple(NAME.read(name) for name in names)


def _weights(value: Any) -> Mapping[str, float]:
    mix = value if isinstance(value, Mapping) else {value: 1.0}
    if not mix:
        raise ValueError
    return {NAME.read(name): POSITIVE.read(weight) for name, weight in mix.items()}


def _listed(value: Any) -> Sequence[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(value)


def _lines(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(TEXT.read(line) for line in value)


def _shapes(value: Any) -> tuple[TaskShape, ...]:
    if not isinstance(value, list):
        raise TypeError
    shapes = [shape if isinstance(shape, list) else [shape] for shape in value]
    return tuple(TaskShape(COUNT_OF_SOME.read(slots), *map(POSITIVE.read, seconds)) for slots, *seconds in shapes)


NAME = Kind("a name of letters, digits, '.', '_' and '-'", _text(_NAME.fullmatch))
TEXT = Kind("a non-empty string without control characters", _text(_is_plain))
PLACE = Kind("the name of a host, HOST/CARD or HOST/CARD/SLOT", _text(bool))
COUNT = Kind("a whole number, 0 or more", _whole(0))
COUNT_OF_SOME = Kind("a whole number, 1 or more", _whole(1))
SECONDS = Kind("finite seconds, 0 or more", _number(lambda value: value >= 0))
POSITIVE = Kind("a finite number above 0", _number(lambda value: value > 0))
AT_LEAST_ONE = Kind("a finite number, 1 or more", _number(lambda value: value >= 1))
SHARE = Kind("a number above 0, 1 at most", _number(lambda value: 0 < value <= 1))
FLAG = Kind("true or false", _flag)
NAMES = Kind("a name, or a list of names", _names)
MIX = Kind("a name, or a table of names and weights above 0", _weights)
TABLES = Kind("a non-empty list of tables", _listed)
LINES = Kind("a list of strings", _lines)
SECONDS_SPREAD = Kind("seconds, 0 or more, or a range [low, high] of them", _spread(SECONDS.read))
POSITIVE_SPREAD = Kind("a number above 0, or a range [low, high] of them", _spread(POSITIVE.read))
COUNT_SPREAD = Kind("a whole number, 0 or more, or a range [low, high] of them", _spread(COUNT.read))
WIDTH_SPREAD = Kind(f"{whole(1).expected}, or a range [low, high] of them", _spread(whole(1).read))
SHAPES = Kind("a list of numbers of slots, each alone or as [slots, seconds]", _shapes)
