"""Entry points of the programs; if a library is missing, they name the extra that installs it.

Importing the modules of a program takes a while; Ctrl-C during that time has the same effect as later.
"""

import gc
import importlib
import sys
from functools import partial
from typing import Any

WRONG_USAGE, INTERRUPTED = 2, 130

#: Descriptions in `--help` of the programs whose options are those of a configuration.
DESCRIPTIONS = {
    "fpga-pool-agent": "Run the slots, the data port, the virtual machines and the egress limits of one host.",
    "fpga-pool-api": "Serve the REST API and the dashboard of a pool of FPGA slots.",
    "fpga-pool-scheduler": "Decide which slot of a pool runs what, command the agents, and keep the database.",
    "fpga-pool-standalone": "Run a whole pool with simulated slots in one process, with REST API and dashboard.",
    "fpga-pool-status": "Check whether the services of this version could start with this configuration.",
}


def _run(program: str, module: str, extra: str = "") -> int:
    """Run the `main` of a module; return the exit status."""
    # No program uses eventlet, but libraries import it if Nova's environment has it, which costs 9 MB and 0.1 s.
    sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]  # makes `import` treat it as missing
    try:
        status: int = _loaded(module).main()
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in {"", "fpga_pool"}:
            raise
        wanted = f"fpga_pool[{extra}]" if extra else "fpga_pool"
        print(f"{program}: {library} is not installed: pip install '{wanted}'", file=sys.stderr)
        return WRONG_USAGE
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED
    return status


def _loaded(name: str) -> Any:
    gc.disable()  # imported objects stay alive, so collecting them would free nothing, now or later
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


agent = partial(_run, "fpga-pool-agent", "fpga_pool.cli.daemons.agent", "agent")
api = partial(_run, "fpga-pool-api", "fpga_pool.cli.daemons.api", "controller")
client = partial(_run, "fpga-pool", "fpga_pool.cli.client.main")
learn = partial(_run, "fpga-pool-learn", "fpga_pool.cli.learn", "sim")
manage = partial(_run, "fpga-pool-manage", "fpga_pool.cli.admin.main", "controller")
scheduler = partial(_run, "fpga-pool-scheduler", "fpga_pool.cli.daemons.scheduler", "controller")
sim = partial(_run, "fpga-pool-sim", "fpga_pool.cli.sim.main", "sim")
standalone = partial(_run, "fpga-pool-standalone", "fpga_pool.cli.daemons.standalone", "standalone")
status = partial(_run, "fpga-pool-status", "fpga_pool.cli.admin.status", "controller")
