"""Statements that change rows, built once."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect

from fpga_pool.store.tables.mapping import PLACES, table


@cache
def removal(cls: type) -> sa.Delete:
    """Return the statement that removes the values whose keys are among `keys`."""
    return sa.delete(table(cls)).where(table(cls).c[PLACES[cls].key].in_(sa.bindparam("keys", expanding=True)))


@cache
def insertion(cls: type) -> sa.Insert:
    """Return the statement that stores new rows of a class, of the columns that are given; others are NULL."""
    return sa.insert(table(cls))


@cache
def change(cls: type, names: tuple[str, ...]) -> sa.Update:
    """Return the statement that changes these columns of the row with `the_key`, if it has `the_generation`."""
    rows = table(cls)
    same = (rows.c[PLACES[cls].key] == sa.bindparam("the_key")) & (rows.c.generation == sa.bindparam("the_generation"))
    values: Any = {name: sa.bindparam(name) for name in names}
    return sa.update(rows).where(same).values(values)


@cache
def bulk_change(dialect: str, cls: type, names: tuple[str, ...]) -> tuple[tuple[str, ...], sa.TextClause]:
    """Return the statement that changes these columns in many rows at once, and the columns that it must be given.

    It says that rows are to be stored, and what is to be changed where their keys exist: only this form allows
    different values for many rows in one statement. Each row must have all columns that cannot be NULL.

    No generation is compared: the caller holds the lock that orders the writers of these rows, which exist.

    SQLAlchemy does not cache such statements; as text, with the types of the columns, it needs no second compilation.
    """
    rows, key = table(cls), PLACES[cls].key
    _refuse_second_key(rows, key)
    given = tuple(column.name for column in rows.c if column.name in names or not column.nullable)
    statement: Any
    if dialect == "mysql":
        new = mysql.insert(rows)
        statement = new.on_duplicate_key_update({name: new.inserted[name] for name in names})
    else:
        new_row: Any = (postgresql if dialect == "postgresql" else sqlite).insert(rows)
        replacing = {name: new_row.excluded[name] for name in names}
        statement = new_row.on_conflict_do_update(index_elements=[key], set_=replacing)
    compiled = statement.compile(dialect=_with_names(dialect), column_keys=given)
    return given, sa.text(str(compiled)).bindparams(*(sa.bindparam(name, type_=rows.c[name].type) for name in given))


def given_in(cls: type, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns that these rows, which have the same ones, must be stored with: NULL need not be said."""
    columns = table(cls).c
    return tuple(name for name in rows[0] if not columns[name].nullable or any(row[name] is not None for row in rows))


def _refuse_second_key(rows: sa.Table, key: str) -> None:
    """MariaDB would replace a row that has another key, and a value in common in a second unique column."""
    unique = [[column.name for column in rows.primary_key]]
    unique += [
        [c.name for c in constraint.columns]
        for constraint in rows.constraints
        if type(constraint) is sa.UniqueConstraint
    ]
    unique += [[c.name for c in index.columns] for index in rows.indexes if index.unique]
    if unique != [[key]]:
        raise ValueError(f"{rows.name}: {key} is not its only unique column (there are {unique})")


def _with_names(dialect: str) -> Dialect:
    """Return a dialect that writes parameters as `text` reads them."""
    made: Dialect = {"mysql": mysql, "postgresql": postgresql}.get(dialect, sqlite).dialect(paramstyle="named")
    return made
