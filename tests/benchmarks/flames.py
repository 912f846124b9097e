"""Draw a flame graph of the CPU time that the processes of a pool spend on a batch of small jobs.

    python tests/benchmarks/flames.py JOBS USERS SECONDS FILE.svg

Users submit batches as in `test_small_jobs.py`, to the same pool, while py-spy, which must be in PATH, samples every
Python process.  The full width is the CPU time of all processes per batch.  The width of each process is its CPU time
as counted by the kernel, divided in proportion to the samples of the thread that held the interpreter's lock.
Functions of a library are one box.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from html import escape
from pathlib import Path

from test_small_jobs import SET_UP, measure

from fpga_pool.conf.catalogue import installed_catalogue
from support.deployment import Deployment
from support.servers import MariaDB, RabbitMQ

WIDTH, ROW, LETTER = 1200, 17, 6.3
#: Narrower boxes are omitted, as a share of the width.
NARROWEST = 0.004
PER_S = 100
LIBRARIES = {"lib-dynload": "python", "asyncio": "asyncio", "threading.py": "", "concurrent": ""}

Stack = tuple[str, ...]


def box(frame: str) -> str:
    """Return the label of a frame: one of our functions with its module, the name of a library, or "" for no box."""
    function, _, place = frame.rpartition(" (")
    path = re.sub(r"(:\d+)?\)$", "", place)
    if path.startswith("fpga_pool/"):
        return f"{path.removeprefix('fpga_pool/').removesuffix('.py')}: {function.removesuffix('>').split('<')[-1]}"
    first = path.partition("/")[0]
    return LIBRARIES.get(first, first.removesuffix(".py"))


def stacks(raw: Path) -> dict[Stack, int]:
    """Return how often each stack was sampled, as boxes from the outermost to the innermost."""
    found: Counter[Stack] = Counter()
    for line in raw.read_text().splitlines():
        text, _, count = line.rpartition(" ")
        boxes = [one for one in map(box, text.split(";")) if one]
        found[tuple(one for one, before in zip(boxes, ["", *boxes], strict=False) if one != before)] += int(count)
    return found


def picture(processes: dict[str, tuple[float, dict[Stack, int]]], title: str) -> str:
    """Return the graph of processes, each given as its CPU time in ms and its stacks, as SVG."""
    whole = sum(ms for ms, _ in processes.values())
    rects: list[tuple[float, float, int, str]] = []

    def draw(found: dict[Stack, int], depth: int, left: float, ms: float) -> None:
        total = sum(found.values())
        inner: dict[str, Counter[Stack]] = {}
        for stack, count in found.items():
            if stack:
                inner.setdefault(stack[0], Counter())[stack[1:]] += count
        for name, of_name in sorted(inner.items(), key=lambda one: -sum(one[1].values())):
            took = ms * sum(of_name.values()) / total
            if took >= NARROWEST * whole:
                rects.append((left, took, depth, name))
                draw(of_name, depth + 1, left, took)
            left += took

    left = 0.0
    for name, (ms, found) in sorted(processes.items(), key=lambda one: -one[1][0]):
        if ms >= NARROWEST * whole:
            rects.append((left, ms, 0, f"{name} {ms:.2f} ms"))
            draw(found, 1, left, ms)
        left += ms
    height = (max(depth for _, _, depth, _ in rects) + 2) * ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
        f'font-size="10"><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text x="2" y="12">{escape(title)}: {whole:.1f} ms</text>'
    ]
    for left, ms, depth, name in rects:
        x, width, y = WIDTH * left / whole, WIDTH * ms / whole, (depth + 1) * ROW
        color = "#9ecae1" if depth == 0 else "#fdd0a2" if ":" in name else "#e0e0e0"
        function = name if depth == 0 else name.partition(": ")[2].rpartition(".")[2] or name
        room = int((width - 4) / LETTER)
        shown = next((one for one in (name, function, function[: room - 1] + ".") if 3 <= len(one) <= room), "")
        lines.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{color}" stroke="#fff">'
            f"<title>{escape(name)}: {ms:.2f} ms</title></rect>"
            + (f'<text x="{x + 2:.1f}" y="{y + 12}" pointer-events="none">{escape(shown)}</text>' if shown else "")
        )
    return "\n".join([*lines, "</svg>", ""])


def main(jobs: int, users: int, seconds: float, target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        catalogue = installed_catalogue().read_text().replace(SET_UP, SET_UP.replace("1e-3", "0.0"))
        (directory / "catalogue.toml").write_text(catalogue)
        options = {
            "functions": {"catalogue": directory / "catalogue.toml"},
            "driver_simulated": {"board": "kintex7"},
            "scheduler": {"dispatch_lead_s": 0.05},
        }
        with RabbitMQ(directory) as rabbitmq, MariaDB(directory) as mariadb:
            pool = Deployment(directory / "p", rabbitmq.url, mariadb.new_database(), requesters=1, options=options)
            with pool:
                ours = {one: pool.pid(one) for one in pool.names}
                servers = {server.name: server._process.pid for server in (rabbitmq, mariadb)}
                spies: list[subprocess.Popen[bytes]] = []

                def watch(client: int) -> None:
                    for one, pid in {**ours, "client": client}.items():
                        command = ["py-spy", "record", "--pid", str(pid), "--output", directory / f"{one}.raw"]
                        command += ["--gil", "--nonblocking", "--format", "raw", "--rate", str(PER_S)]
                        command += ["--duration", str(int(seconds))]
                        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                        spies.append(subprocess.Popen(command, **quiet))

                _, each_ms, _ = measure(pool.endpoint, ours | servers, directory, jobs, users, seconds, watch)
                for spy in spies:
                    spy.wait()
        processes = {
            one: (jobs * ms, stacks(raw) if (raw := directory / f"{one}.raw").exists() else {})
            for one, ms in each_ms.items()
        }
    title = f"CPU per batch of {jobs}, {users} users"
    target.write_text(picture(processes, title))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
