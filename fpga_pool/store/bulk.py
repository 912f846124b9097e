"""Many rows by one statement, where the ORM would send one for each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, UniqueConstraint
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import Insert

#: How many rows the driver is given at once; it may send them in several packets.
ROWS_PER_CALL = 1000

Row = Mapping[str, Any]


def upsert(where: Session | Connection, table: Table, rows: Sequence[Row], key: str) -> None:
    """Store whole rows, all with the same columns; a row whose `key` exists is replaced.

    No generation is compared: the caller holds the lock that orders the writers of these rows.
    """
    _refuse_second_key(table, key)
    connection = where.connection() if isinstance(where, Session) else where
    for chunk in _chunks(rows):
        connection.execute(_statement(connection.dialect.name, table, chunk[0], key), chunk)


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for begin in range(0, len(rows), ROWS_PER_CALL):
        yield rows[begin : begin + ROWS_PER_CALL]


def _refuse_second_key(table: Table, key: str) -> None:
    """MariaDB would replace a row that has another key, and a value in common in a second unique column."""
    unique = [[column.name for column in table.primary_key]]
    unique += [
        [c.name for c in constraint.columns] for constraint in table.constraints if type(constraint) is UniqueConstraint
    ]
    unique += [[c.name for c in index.columns] for index in table.indexes if index.unique]
    if unique != [[key]]:
        raise ValueError(f"{table.name}: {key} is not its only unique column (there are {unique})")


def _statement(dialect: str, table: Table, row: Row, key: str) -> Insert:
    changed = [column for column in row if column != key]
    if dialect == "mysql":
        replacing = mysql.insert(table)
        return replacing.on_duplicate_key_update({column: replacing.inserted[column] for column in changed})
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    new = insert(table)
    return new.on_conflict_do_update(index_elements=[key], set_={column: new.excluded[column] for column in changed})
