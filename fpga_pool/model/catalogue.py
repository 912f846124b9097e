"""The catalogue: functions that can be loaded, and boards to load them into (format: doc/formats)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self, TypeVar

from fpga_pool.core.timemodel import SizeModel, TimeModel
from fpga_pool.model.catalogue_schema import check_structure
from fpga_pool.model.exceptions import InvalidCatalogue, NotFound, UnknownFunction
from fpga_pool.model.flavor import board_trait, function_trait, kind_trait
from fpga_pool.model.objects.bitstreams import Design, DesignManifest, KnownDesign, is_design

ValueT = TypeVar("ValueT")

#: Counts of luts, ffs, brams (36 Kb blocks), urams and dsps; a missing one is 0.
Resources = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """An accelerator function: what it needs and how fast it is."""

    name: str
    version: str
    #: Kinds of slots that can hold it.
    slot_kinds: tuple[str, ...]
    resources: Resources
    #: DMA rate in bits per second when it runs alone on its fastest board.
    io_bps: float
    #: Whether a running job may be evicted from its slot.
    preemptible: bool
    #: Whether an evicted job resumes where it was stopped; otherwise it starts from the beginning.
    progress_kept: bool
    #: Time model on one standard vCPU (1 core, 2 GB); None if only the speedup is known.
    cpu_time: TimeModel | None
    #: Time models by board name.
    fpga_time: Mapping[str, TimeModel]
    #: For simulations: the speedup itself, instead of the CPU's time model.
    speedup_given: float | None
    #: Source of the figures.
    source: str
    #: Size of a result; None = negligible, or unknown.
    result_size: SizeModel | None = None
    #: By function that runs on the same card: the extra time relative to its time alone, as far as learned.
    neighbour_costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """Benefit in vCPU equivalents (benefit paper, equation 1): CPU time / fastest board's time, large input."""
        if self.speedup_given is not None:
            return self.speedup_given
        if self.cpu_time is None:
            raise InvalidCatalogue(f"functions.{self.name}: missing; expected speedup or cpu_time")
        return self.cpu_time.b_s_per_byte / self._fastest_s_per_byte

    @property
    def _fastest_s_per_byte(self) -> float:
        return min(model.b_s_per_byte for model in self.fpga_time.values())

    def slowdown_on(self, board: str) -> float:
        """Return its computation time on `board` relative to that on its fastest board, for a large input."""
        model = self.fpga_time.get(board)
        if model is None or model.b_s_per_byte == 0:
            return 1.0
        return model.b_s_per_byte / self._fastest_s_per_byte

    def speedup_on(self, board: str) -> float:
        """Return its benefit on `board`, in vCPU equivalents."""
        return self.speedup / self.slowdown_on(board)

    def io_bps_on(self, board: str) -> float:
        """Return the DMA rate it needs on `board` at full speed: the same bytes over the computation time there."""
        model = self.fpga_time.get(board)
        if model is None or model.b_s_per_byte == 0:
            return self.io_bps
        return self.io_bps * self._fastest_s_per_byte / model.b_s_per_byte


def not_to_be_had(function: str) -> str:
    """Return the error for the function of a design that a project may not use, whether or not it exists."""
    return f"function {function!r} does not belong to an approved design that the project may use"


def design_function(name: str, manifest: DesignManifest) -> Function:
    """Return the function of a design as described by its manifest."""
    resources = {one: count for one in ("luts", "ffs", "brams", "urams", "dsps") if (count := getattr(manifest, one))}
    return Function(
        name=name,
        version=manifest.version,
        slot_kinds=(manifest.kind,),
        resources=resources,
        io_bps=manifest.io_bps,
        preemptible=False,
        progress_kept=False,
        cpu_time=None,
        fpga_time={manifest.board: TimeModel(manifest.a_s, manifest.b_s_per_byte)},
        speedup_given=manifest.speedup,
        source="the manifest of a design",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Resources of every slot of one kind on one board."""

    resources: Resources
    #: Size of its partial bitstreams; determined by the area of the region, not by the function.
    bitstream_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A type of FPGA card, divided into slots."""

    name: str
    #: Kind of each slot, in the order of the regions on the card.
    slots: tuple[str, ...]
    regions: Mapping[str, Region]
    #: Rate of the configuration port, which the slots of a card share.
    configuration_bps: float
    #: Rate of the DMA engine, which the slots of a card share.
    dma_bps: float
    source: str

    def load_s(self, kind: str) -> float:
        """Return the time for loading any function into a slot of this kind, in seconds."""
        return self.regions[kind].bitstream_bytes * 8 / self.configuration_bps


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """All functions and boards of a pool, by name; the constructor checks their consistency."""

    functions: Mapping[str, Function]
    boards: Mapping[str, Board]

    def __post_init__(self) -> None:
        _check_traits("functions", self.functions, function_trait)
        _check_traits("boards", self.boards, board_trait)
        _check_traits("kinds", sorted({kind for board in self.boards.values() for kind in board.regions}), kind_trait)
        for board in self.boards.values():
            _check_board(board)
        for function in self.functions.values():
            _check_speedup(function)
            self._check_placement(function)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str) -> Self:
        """Read the catalogue format; InvalidCatalogue names the source `where` and the invalid place in it."""
        try:
            check_structure(data)
            return cls(
                functions=_read_only({name: _function(name, entry) for name, entry in data["functions"].items()}),
                boards=_read_only({name: _board(name, entry) for name, entry in data.get("boards", {}).items()}),
            )
        except InvalidCatalogue as error:
            raise InvalidCatalogue(f"{where}: {error}") from None

    def function(self, name: str) -> Function:
        """Return the function of this name."""
        try:
            return self.functions[name]
        except KeyError:
            if is_design(name):
                raise UnknownFunction(not_to_be_had(name)) from None
            known = ", ".join(sorted(name for name in self.functions if not is_design(name)))
            raise UnknownFunction(f"function {name!r} is not in the catalogue; it has {known}") from None

    def board(self, name: str) -> Board:
        """Return the board of this name."""
        try:
            return self.boards[name]
        except KeyError:
            known = ", ".join(self.boards)
            raise NotFound(f"board {name!r} is not in the catalogue; it has {known}") from None

    def fits(self, function: str, board: str, kind: str) -> bool:
        """Return whether the function fits into slots of this kind on this board; False for an unknown board."""
        entry, regions = self.function(function), self.boards[board].regions if board in self.boards else {}
        region = regions.get(kind)
        if region is None or kind not in entry.slot_kinds or (entry.fpga_time and board not in entry.fpga_time):
            return False
        return all(count <= region.resources.get(name, 0) for name, count in entry.resources.items())

    def loadable(self, board: Board) -> list[tuple[Function, str]]:
        """Return all pairs of a function and a kind of slot of the board that it fits, by name of the function."""
        return [
            (function, kind)
            for name, function in sorted(self.functions.items())
            for kind in board.regions
            if self.fits(name, board.name, kind)
        ]

    def scarcity(self, demand: Mapping[str, float] = MappingProxyType({})) -> Mapping[tuple[str, str], float]:
        """Return the value of a slot for the functions of the catalogue, between 0 and 1, by board and kind.

        The weight of a function is 1 plus its demand, divided among the kinds of a board that it fits.  So a slot that
        is the only choice of some function is worth more than one of a kind to which all functions have alternatives.
        """
        weights = {name: 1.0 + demand.get(name, 0.0) for name in self.functions}
        total = sum(weights.values())
        return {
            place: sum(weights[name] * share for name, share in shares.items()) / total
            for place, shares in self._shares.items()
        }

    @cached_property
    def _shares(self) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """By board and kind, for each function that fits: 1 / number of kinds of the board that it fits."""
        found: dict[tuple[str, str], dict[str, float]] = {}
        for board, entry in self.boards.items():
            fitting = {
                name: [kind for kind in entry.regions if self.fits(name, board, kind)] for name in self.functions
            }
            for kind in entry.regions:
                found[board, kind] = {name: 1 / len(kinds) for name, kinds in fitting.items() if kind in kinds}
        return found

    def _check_placement(self, function: Function) -> None:
        """Refuse time models for boards that do not exist or have no slot that the function fits."""
        kinds = {kind for board in self.boards.values() for kind in board.slots}
        for kind in function.slot_kinds:
            if self.boards and kind not in kinds:
                raise InvalidCatalogue(
                    f"functions.{function.name}.slot_kinds: no board has slots of kind {kind!r}; "
                    f"kinds are {', '.join(sorted(kinds))}"
                )
        for board in function.fpga_time:
            place = f"functions.{function.name}.fpga_time.{board}"
            if board not in self.boards:
                raise InvalidCatalogue(f"{place}: no such board; expected one of {', '.join(self.boards)}")
            if not any(self.fits(function.name, board, kind) for kind in self.boards[board].slots):
                raise InvalidCatalogue(
                    f"{place}: fits no slot of this board; it requires one of the kinds "
                    f"{', '.join(function.slot_kinds)} with {_listed(function.resources)}"
                )


# ---- Functions of designs


def extended(catalogue: Catalogue, designs: Iterable[Design | KnownDesign]) -> Catalogue:
    """Return the catalogue extended by the functions of those designs that fit its boards."""
    functions: dict[str, Function] = {}
    for design in designs:
        try:
            functions[design.function] = checked_function(catalogue, design)
        except InvalidCatalogue:  # the board, or its kind of slots, is not in the catalogue any more
            continue
    return replace(catalogue, functions={**catalogue.functions, **functions}) if functions else catalogue


def checked_function(catalogue: Catalogue, design: Design | KnownDesign) -> Function:
    """Return the function of a design. Raises InvalidCatalogue if it cannot be added to the catalogue."""
    function = design_function(design.function, design.manifest)
    replace(catalogue, functions={**catalogue.functions, function.name: function})
    return function


# ---- Checks and the format


def _check_traits(table: str, names: Collection[str], trait_of: Callable[[str], str]) -> None:
    """Refuse names that would have the same trait in Placement."""
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(trait_of(name), name)
        if other != name:
            raise InvalidCatalogue(f"{table}: {other!r} and {name!r} have the same trait {trait_of(name)}; rename one")


def _check_board(board: Board) -> None:
    for kind in board.slots:
        if kind not in board.regions:
            raise InvalidCatalogue(f"boards.{board.name}.slots: kind {kind!r} is not described under regions")
    for kind in board.regions:
        if kind not in board.slots:
            raise InvalidCatalogue(f"boards.{board.name}.regions.{kind}: the board has no slot of this kind")


def _check_speedup(function: Function) -> None:
    """Refuse functions whose speedup is given twice, not at all, or not finite and positive."""
    place = f"functions.{function.name}"
    if function.speedup_given is not None:
        if function.cpu_time is not None:
            raise InvalidCatalogue(
                f"{place}: speedup and cpu_time are both given; expected only one, as cpu_time implies the speedup"
            )
        return
    if function.cpu_time is None or not function.fpga_time:
        raise InvalidCatalogue(f"{place}: expected either cpu_time and fpga_time, or speedup")
    for name, model in {"cpu_time": function.cpu_time, **_by_place(function.fpga_time)}.items():
        if model.b_s_per_byte == 0:
            raise InvalidCatalogue(f"{place}.{name}: b_s_per_byte must be > 0, as it determines the speedup")


def _by_place(fpga_time: Mapping[str, TimeModel]) -> dict[str, TimeModel]:
    return {f"fpga_time.{board}": model for board, model in fpga_time.items()}


def _function(name: str, entry: Mapping[str, Any]) -> Function:
    """Read one `[functions.NAME]` whose structure has been checked."""
    return Function(
        name=name,
        version=str(entry["version"]),
        slot_kinds=tuple(entry["slot_kinds"]),
        resources=_read_only(entry.get("resources", {})),
        io_bps=float(entry["io_bps"]),
        preemptible=entry["preemptible"],
        progress_kept=entry.get("progress_kept", False),
        cpu_time=_time_model(entry["cpu_time"]) if "cpu_time" in entry else None,
        fpga_time=_read_only({board: _time_model(model) for board, model in entry.get("fpga_time", {}).items()}),
        speedup_given=float(entry["speedup"]) if "speedup" in entry else None,
        source=entry["source"],
        result_size=_size_model(entry["result_size"]) if "result_size" in entry else None,
    )


def _size_model(entry: Mapping[str, Any]) -> SizeModel:
    return SizeModel(float(entry["a_bytes"]), float(entry["b_bytes_per_byte"]))


def _time_model(entry: Mapping[str, Any]) -> TimeModel:
    return TimeModel(float(entry["a_s"]), float(entry["b_s_per_byte"]))


def _board(name: str, entry: Mapping[str, Any]) -> Board:
    """Read one `[boards.NAME]` whose structure has been checked."""
    return Board(
        name=name,
        slots=tuple(entry["slots"]),
        regions=_read_only({kind: _region(region) for kind, region in entry["regions"].items()}),
        configuration_bps=float(entry["configuration_bps"]),
        dma_bps=float(entry["dma_bps"]),
        source=entry["source"],
    )


def _region(entry: Mapping[str, Any]) -> Region:
    resources = {name: count for name, count in entry.items() if name != "bitstream_bytes"}
    return Region(resources=_read_only(resources), bitstream_bytes=entry["bitstream_bytes"])


def _read_only(mapping: Mapping[str, ValueT]) -> Mapping[str, ValueT]:
    return MappingProxyType(dict(mapping))


def _listed(resources: Resources) -> str:
    return ", ".join(f"{count} {name}" for name, count in resources.items()) or "no resources"
