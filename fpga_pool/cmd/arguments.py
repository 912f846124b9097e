"""Kinds of arguments that several commands take."""

import argparse


def positive_seconds(text: str) -> float:
    """Return a finite time above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got {text!r}")
    return value
