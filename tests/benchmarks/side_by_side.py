"""Run one benchmark alternately in this checkout and in another, and show the differences of their outputs.

    python tests/benchmarks/side_by_side.py --against ../before --rounds 3 pytest tests/benchmarks/test_ranking.py -s

The command runs in the top directory of each checkout, with the checkout's `.venv/bin` first in PATH.  Lines that both
print, except for their numbers, are printed once: for each number that differs, the median in this checkout, and in
brackets its ratio to the median in the other.  The last line is the CPU time of the command with all processes that it
waited for, including imports.  The order is other, this, this, other and so on, so that a machine that becomes slower
favors neither.
"""

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")

#: The numbers of each run, by the text of the line without numbers and the count of equal lines before it.
Lines = dict[tuple[str, int], list[list[float]]]


def run(checkout: Path, command: list[str]) -> tuple[list[str], float]:
    """Return the lines that a command prints, and its CPU time in seconds."""
    path = f"{checkout / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    before_s = children_s()
    done = subprocess.run(command, cwd=checkout, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{checkout}: {' '.join(command)} failed\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines(), children_s() - before_s


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def note(lines: list[str], noted: Lines) -> None:
    """Add the output of one run."""
    seen: Counter[str] = Counter()
    for line in lines:
        text = NUMBER.sub("#", line)
        noted[text, seen[text]].append([float(number.replace(",", "")) for number in NUMBER.findall(line)])
        seen[text] += 1


def compared(text: str, ours: list[list[float]], theirs: list[list[float]]) -> str | None:
    """Return the line with our medians and their ratios to the others; None if no number differs."""
    shown = []
    for here, there in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        now, before = statistics.median(here), statistics.median(there)
        if len({*here, *there}) == 1:
            shown.append(f"{now:g}")
        else:
            shown.append(f"{now:g}[{now / before:.3f}]" if before else f"{now:g}[{before:g}]")
    if all("[" not in number for number in shown):
        return None
    parts = text.split("#")
    return "".join(part + number for part, number in zip(parts, [*shown, ""], strict=True))


def main() -> None:
    """Run the benchmark in both checkouts, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True, metavar="PATH", help="the other checkout")
    parser.add_argument("--rounds", type=int, default=3, help="runs in each checkout (default: 3)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the benchmark")
    given = parser.parse_args()
    checkouts = [given.against.resolve(), HERE]
    noted: dict[Path, Lines] = {checkout: defaultdict(list) for checkout in checkouts}
    for number in range(given.rounds):
        for checkout in checkouts if number % 2 == 0 else reversed(checkouts):
            lines, took_s = run(checkout, given.command)
            note([*lines, f"all of it: {took_s:.2f} s of processor time"], noted[checkout])
    there, here = (noted[checkout] for checkout in checkouts)
    for key, ours in here.items():
        if key in there:
            line = compared(key[0], ours, there[key])
            if line is not None:
                print(line)


if __name__ == "__main__":
    main()
