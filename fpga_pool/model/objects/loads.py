"""Loads of functions into slots, which are charged to projects."""

import uuid
from dataclasses import dataclass
from typing import Self

from fpga_pool.model.fields import Moment
from fpga_pool.model.objects.pool import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedLoad:
    """A load that began on behalf of a project, whether it succeeded or not."""

    uuid: str
    slot: str
    project_id: str
    function: str
    began_at: Moment

    @classmethod
    def of(cls, slot: Slot, project_id: str, now_s: float) -> Self:
        """Return the load that has just begun in a slot.

        Its uuid depends on the time, too, as the count of loads restarts if a slot is removed and added again.
        """
        key = str(uuid.uuid5(uuid.UUID(slot.uuid), f"load {slot.reconfigurations} {now_s!r}"))
        return cls(uuid=key, slot=slot.name, project_id=project_id, function=slot.function, began_at=now_s)
