"""Almost valid input: valid messages and files with a few changes."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

#: Values at the limits of types, and far beyond.
NUMBERS = st.sampled_from([0, -1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 1e300, -1e300, 0.5])
NOT_NUMBERS = st.sampled_from([float("inf"), float("-inf"), float("nan")])
TEXTS = st.sampled_from(["", "../../x", "\0", "\ud800", "a" * 300, "%s", "\u202e", "0" * 5000]) | st.text(max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | NUMBERS | NOT_NUMBERS | TEXTS
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def changed_messages(draw: Any, valid: Sequence[Any]) -> Any:
    """Return one of the valid plain values, changed in one to three places."""
    plain = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 3))):
        plain = _changed(draw, plain)
    return plain


def _changed(draw: Any, plain: Any) -> Any:
    """Replace, add or remove a value at any depth."""
    what = draw(st.integers(0, 9))
    if isinstance(plain, dict) and plain and what > 1:
        key = draw(st.sampled_from(sorted(plain)))
        others = {name: value for name, value in plain.items() if name != key}
        if what == 2:
            return others
        if what == 3:
            return plain | {draw(st.text(max_size=8)): draw(PLAIN)}
        return plain | {key: _changed(draw, plain[key])}
    if isinstance(plain, list) and plain and what > 1:
        place = draw(st.integers(0, len(plain) - 1))
        return [*plain[:place], _changed(draw, plain[place]), *plain[place + 1 :]]
    return draw(PLAIN)


@st.composite
def changed_bytes(draw: Any, valid: Sequence[bytes]) -> bytes:
    """Return a valid file in which one to four pieces are replaced, by other pieces of the file or by any bytes."""
    content: bytes = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.integers(0, 40)))
        start = draw(st.integers(0, len(content)))
        copied = content[start : start + draw(st.integers(0, 40))]
        piece: bytes = draw(st.just(copied) | st.binary(max_size=8) | NUMBERS.map(lambda number: str(number).encode()))
        content = content[:begin] + piece + content[end:]
    return content


@st.composite
def changed_leaves(draw: Any, valid: Any) -> Any:
    """Return a valid plain value with one to three of its numbers and texts changed, all equally likely."""
    plain = copy.deepcopy(valid)
    leaves = list(_leaves(plain))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(leaves))
        holder[key] = draw(TEXTS if isinstance(holder[key], str) else NUMBERS | NOT_NUMBERS | st.integers(0, 9))
    return plain


def _leaves(plain: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the place of each number and text, as its dictionary or list and its key or index."""
    for key, value in list(plain.items() if isinstance(plain, dict) else enumerate(plain)):
        if isinstance(value, dict | list):
            yield from _leaves(value)
        else:
            yield plain, key
