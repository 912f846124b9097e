"""Kinds of arguments that several commands take."""

import argparse
from collections.abc import Callable


def number_that(accepts: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """Return what reads a number, and refuses what is none or not accepted with what was expected."""

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


def positive_count(text: str) -> int:
    """Return a whole number, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, got {text!r}")
    return int(text)


def parameter(text: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value
