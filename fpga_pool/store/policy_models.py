"""The table of what policies remember."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from sqlalchemy import Dialect
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from fpga_pool.store.column_types import LongText
from fpga_pool.store.models import Base, Name, Uuid, Versioned, Word


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


class Names(PlainData):
    """A tuple of names as a JSON list."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        """Read the names."""
        return tuple(json.loads(value or "[]"))


class PolicyMemoryRow(Versioned, Base):
    """Row of `model.policy_memory.PolicyMemory`."""

    __tablename__ = "policy_memories"

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    shard: Mapped[Name]
    family: Mapped[Word]
    policy: Mapped[Name]
    state: Mapped[Annotated[Mapping[str, Any] | None, mapped_column(PlainData, nullable=False)]]
    watched: Mapped[Annotated[Sequence[str], mapped_column(Names)]]
