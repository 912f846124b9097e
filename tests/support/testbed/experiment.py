"""A case under several policies, with and without rate control: predictions of the fluid model and measurements."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TextIO

from fpga_pool.core.makespan.bounds import lower_bound
from fpga_pool.experiments.testbed import Case
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.services.loop import exclusive
from support.servers import MariaDB, RabbitMQ
from support.testbed.cases import UNCONTROLLED, Prediction, nics, optimum_s, predict
from support.testbed.measure import Control, Run, make_inputs, measure
from support.testbed.network import Network, missing, switched_network
from support.testbed.pool import Servers, running_pool

#: A directory in memory, since disks of test machines cannot keep up with 1.5 Gbit/s.
_MEMORY = Path("/dev/shm")
#: Copies of the inputs, at their requesters and in the spools; and space for the pool and its servers.
_COPIES, _ROOM_BYTES = 2, 1 << 30
_PREFIX = "fpga-pool-testbed-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All results of a case."""

    case: Case
    lower_bound_s: float
    optimum_s: float
    #: The variants that were run, in that order.
    variants: tuple["Variant", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One policy, with rate control or without."""

    policy: str
    control: Control
    prediction: Prediction
    runs: tuple[Run, ...]

    @property
    def fluid_s(self) -> float:
        """Makespan that the fluid model predicts."""
        return self.prediction.uncontrolled_s if self.control is Control.NONE else self.prediction.makespan_s

    @property
    def measured_s(self) -> float:
        """Mean makespan of the runs."""
        return sum(run.makespan_s for run in self.runs) / len(self.runs)


def what_is_missing() -> str | None:
    """Return what keeps this machine from running the testbed; None if nothing is known to be missing."""
    return missing() or RabbitMQ.missing() or MariaDB.missing()


def compare(
    case: Case,
    policies: Sequence[str],
    control: Control,
    runs: int,
    logs: Path | None = None,
    on_run: Callable[[Run], None] = lambda _: None,
) -> Comparison:
    """Run a case under each policy; for some cases the first policy, which is ours, is also run without rate control.

    The logs of the pool's processes are copied to the directory `logs`.
    """
    if lack := what_is_missing():
        raise ServiceUnavailable(f"the testbed cannot be built: {lack}")
    predictions = {policy: predict(case, policy) for policy in policies}
    wanted = [(policy, control) for policy in policies]
    if case.name in UNCONTROLLED:
        wanted.insert(1, (policies[0], Control.NONE))
    measured = _measure(case, [*wanted] * runs, logs, on_run)
    problem = case.problem()
    return Comparison(
        case=case,
        lower_bound_s=lower_bound(problem).seconds,
        optimum_s=optimum_s(problem),
        variants=tuple(
            Variant(
                policy=policy,
                control=control,
                prediction=predictions[policy],
                runs=tuple(run for run in measured if (run.policy, run.control) == (policy, control)),
            )
            for policy, control in wanted
        ),
    )


def _measure(
    case: Case, wanted: Sequence[tuple[str, Control]], logs: Path | None, on_run: Callable[[Run], None]
) -> list[Run]:
    """Run every variant in turn; variants with the same egress driver share a pool."""
    measured = []
    with _workplace(case, logs) as directory, switched_network(nics(case)) as network:
        inputs = make_inputs(case, directory / "inputs")
        with _servers(directory, network) as servers:
            by_driver = sorted(wanted, key=lambda one: one[1].egress_driver)
            for driver, variants in groupby(by_driver, key=lambda one: one[1].egress_driver):
                with running_pool(case, network, servers, directory / f"pool-{driver}", driver) as pool:
                    for policy, control in variants:
                        run = measure(case, network, pool, inputs, policy, control, directory / "results")
                        on_run(run)
                        measured.append(run)
    return measured


@contextlib.contextmanager
def _servers(directory: Path, network: Network) -> Iterator[Servers]:
    messages = RabbitMQ(directory / "servers", [network.control_address])
    with messages, MariaDB(directory / "servers") as database:
        yield Servers(messages=messages, database=database)


@contextlib.contextmanager
def _workplace(case: Case, logs: Path | None) -> Iterator[Path]:
    """Yield a directory for all files, in memory if there is enough room; save the logs at its end."""
    needed_bytes = _COPIES * sum(case.input_bytes) + _ROOM_BYTES
    remove_left_over()
    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= needed_bytes
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=_MEMORY if in_memory else None) as name:
        directory = Path(name)
        directory.chmod(0o711)  # the servers' own users pass through
        with _locked(directory):
            try:
                yield directory
            finally:
                if logs is not None:
                    _save_logs(directory, logs / case.name)


def _locked(directory: Path) -> TextIO:
    return exclusive(directory / "lock", f"{directory} is in use")


def remove_left_over() -> None:
    """Remove the files of experiments that were killed: their locks are free."""
    for place in (_MEMORY, Path(tempfile.gettempdir())):
        for directory in place.glob(f"{_PREFIX}*"):
            # A directory without a lock file has just been created, and is about to be locked.
            if (directory / "lock").exists():
                with contextlib.suppress(ServiceUnavailable, OSError), _locked(directory):
                    shutil.rmtree(directory, ignore_errors=True)


def _save_logs(directory: Path, logs: Path) -> None:
    for path in directory.glob("pool-*/*.[lo][ou][gt]"):
        (logs / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, logs / path.parent.name)
