"""Where each guest of a host is to be: what must outlive the agent, for a guest may have changed its tier."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.model.flavor import Tier
from fpga_pool.services.agent.tiers.layout import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One guest."""

    place: Place
    #: When it was last seen to run, seconds of the wall clock.
    seen_s: float


class Book:
    """One file, replaced as a whole: what is read is what was written last.  For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = self._read()

    def entries(self) -> dict[str, Entry]:
        """Return what is written, by instance, in the order of their coming."""
        return dict(self._entries)

    def write(self, entries: Mapping[str, Entry]) -> None:
        """Have this, and nothing else, on disk before it returns."""
        plain = {
            instance: {"tier": entry.place.tier.value, "pcpus": entry.place.pcpus, "seen_s": entry.seen_s}
            for instance, entry in entries.items()
        }
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(plain, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._entries = dict(entries)

    def _read(self) -> dict[str, Entry]:
        try:
            plain = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        return {
            instance: Entry(place=Place(Tier(entry["tier"]), tuple(entry["pcpus"])), seen_s=entry["seen_s"])
            for instance, entry in plain.items()
        }
