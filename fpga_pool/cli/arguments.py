"""Argument types shared by several commands, and error reporting for programs that are not built on cliff."""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

OK, FAILED, WRONG_USAGE = 0, 1, 2


class OneLineParser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message}\n")


def complain(command: str, error: Exception, status: int) -> int:
    """Print in one line why a command failed, and return the status."""
    print(f"{command}: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
    return status


def as_json(result: Any) -> str:
    """Return a result as JSON, with null for infinity and NaN, which JSON does not have."""
    return json.dumps(_finite(result), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number_that(accepts: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """Return an argument type for numbers that `accepts` accepts; its error message says what was `expected`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not accepts(value):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return value

    return read


#: A finite time above 0.
positive_seconds = number_that(lambda value: 0 < value < float("inf"), "a positive number of seconds")
#: A finite age above 0.
positive_days = number_that(lambda value: 0 < value < float("inf"), "a positive number of days")


def whole(least: int) -> Callable[[str], int]:
    """Return an argument type for whole numbers of at least `least`, which must not be negative."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number, {least} or more, got {text!r}")
        return int(text)

    return read


positive_count = whole(1)


def parameter(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def moment(text: str) -> float:
    """Return a point in time in UTC seconds, given as a date with a time zone or as an age such as 12h."""
    if ago := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return time.time() - int(ago[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[ago[2]]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"expected 30m, 12h, 7d or a date with a time zone, found {text!r}")
    return at.timestamp()


def deadline(text: str) -> float:
    """Return a deadline in UTC seconds, given as a date with a time zone or as a number of seconds from now."""
    try:
        return time.time() + positive_seconds(text)
    except argparse.ArgumentTypeError:
        pass
    try:
        return moment(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected seconds, or a date with a time zone, found {text!r}") from None
