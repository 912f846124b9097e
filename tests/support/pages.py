"""Pages of the documentation: the commands that they show, and a shell that runs them.

`python -m support.pages` counts the commands of every page, and how many of them a test runs.
"""

import contextlib
import csv
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.waiting import wait_until

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "doc" / "source"
#: Name of the only page that is not below `SOURCE`.
README = "README"
#: The test that runs commands exactly as they are shown.
PAGES_TEST = "functional/test_pages.py"
#: A command that runs until it is stopped, and the output that shows that it is ready.
SERVER = "fpga-pool-standalone"
READY = re.compile(rf"^{SERVER}: ready on (\S+)\n{SERVER}: dashboard on \S+$", re.MULTILINE)
#: Address of the pool in pages; the pool of a test has another port.
ENDPOINT = "http://127.0.0.1:9511"
START_TIMEOUT_S, PAGE_TIMEOUT_S, STOP_TIMEOUT_S = 240.0, 480.0, 120.0

_DIRECTIVE = re.compile(r"( *)\.\. code-block:: (\w+)$")
_FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_PROMPT = re.compile(r"(?:[\w-]+ )?[$#] (.*)")
#: Text that differs from run to run; it is replaced by a name before texts are compared.
_VARIABLE = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"(?<=[a-z]\.)[0-9a-f]{8}\b"), "DESIGN"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(Z|\+00:00)"), "TIME"),
    (re.compile(r"node-\d/sim0/slot\d"), "SLOT"),
    (re.compile(r"(?<= standalone:)\d+(?= )"), "PROCESS"),
    (re.compile(r"(?<=\| )[\w-]{24}(?= \|)"), "CODE"),
    (re.compile(r"\d+\.\d+(e-\d+)?"), "NUMBER"),
    # Both states are possible: a client tells the pool that it holds the result, which may happen a little later.
    (re.compile(r"\bRESULT_HELD\b"), "COMPLETED"),
    (re.compile(r"-{2,}"), "--"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Block:
    """A code block: its language, the file name in its caption, and its lines without indentation."""

    language: str
    caption: str
    line: int
    text: str


@dataclass(frozen=True)
class Command:
    """A command shown in a page, with the output shown below it."""

    line: int
    text: str
    output: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page, in reStructuredText or Markdown."""
    text = page.read_text()
    if page.suffix == ".md":
        for fence in _FENCE.finditer(text):
            yield Block(fence[1], "", text[: fence.start()].count("\n") + 1, fence[2])
        return
    lines = text.splitlines()
    for number, line in enumerate(lines):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            continue
        margin = len(directive[1])
        body: list[str] = []
        for inner in lines[number + 1 :]:
            if inner.strip() and len(inner) - len(inner.lstrip()) <= margin:
                break
            body.append(inner[margin + 3 :])
        options = [re.match(r":(\w+): (.*)", one) for one in body[: body.index("")]]
        caption = next((one[2] for one in options if one and one[1] == "caption"), "")
        yield Block(directive[2], caption, number + 1, "\n".join(body[len(options) + 1 :]).strip("\n") + "\n")


def commands(page: Path) -> list[Command]:
    """Return the commands of a page: lines after a prompt in console blocks, and the lines of shell blocks."""
    found = []
    for block in blocks(page):
        if block.language not in ("console", "shell"):
            continue
        lines = block.text.splitlines()
        while lines:
            text = _command(lines.pop(0), block.language)
            if text is None:
                raise ValueError(f"{page}:{block.line}: a console block begins with a prompt")
            while lines and _goes_on(text):
                text = f"{text}\n{lines.pop(0)}"
            output = []
            while lines and _command(lines[0], block.language) is None:
                output.append(lines.pop(0))
            found.append(Command(block.line, text, "\n".join(output)))
    return found


def _goes_on(text: str) -> bool:
    """Return whether a command continues on the next line: it ends with a backslash, or within quotes."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return text.endswith("\\")


def _command(line: str, language: str) -> str | None:
    if language == "shell":
        return line
    prompt = _PROMPT.fullmatch(line)
    return prompt and prompt[1]


def agrees(shown: str, printed: str) -> bool:
    """Return whether output matches what a page shows; `...` in a page matches any text."""
    pattern = re.escape(_form(shown)).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, _form(printed), re.DOTALL) is not None


def _form(text: str) -> str:
    for varying, name in _VARIABLE:
        text = varying.sub(name, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def run(
    page: Path,
    directory: Path,
    todo: Sequence[Command],
    *,
    pool: bool,
    shell: Sequence[str] = ("bash",),
    timeout_s: float = PAGE_TIMEOUT_S,
    extra: Mapping[str, str] | None = None,
) -> list[str]:
    """Run commands of a page in one shell, in `directory`; return where their results differ from the page.

    `shell` is the command that runs a script; `extra` are additional environment variables.

    Blocks with a caption are written to files of that name. With `pool`, the commands use an embedded pool, which is
    started as in the page, or else as in the user's guide. A command must fail if the page shows an error message of
    its program. Output is compared if the page shows any.
    """
    home = directory / "home"
    home.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "XDG_"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home), "COLUMNS": "200"}
    environment |= extra or {}
    starts = todo and todo[0].text.removeprefix(".venv/bin/").startswith(SERVER)
    with contextlib.ExitStack() as running:
        endpoint = ENDPOINT
        if pool:
            command, todo = (todo[0], todo[1:]) if starts else (Command(0, SERVER, ""), todo)
            said = running.enter_context(_running(command.text, directory, {**environment, "OS_API__PORT": "0"}))
            if command.output and not agrees(command.output, said[0]):
                return [f"{page.name}:{command.line}: {command.text}: shown\n{command.output}\nprinted\n{said[0]}"]
            endpoint = said[1]
            environment["FPGA_POOL_ENDPOINT"] = endpoint
        if pool and not starts:  # the page does not say where the pool keeps its state
            database = home / ".local" / "state" / "fpga_pool" / "pool.sqlite"
            environment["OS_DATABASE__CONNECTION"] = f"sqlite:///{database}"
        for block in blocks(page):
            if block.caption:
                (directory / block.caption).write_text(block.text.replace(ENDPOINT, endpoint))
        texts = [one.text.replace(ENDPOINT, endpoint) for one in todo]
        return _differences(page, todo, _results(texts, directory, environment, shell, timeout_s))


@contextlib.contextmanager
def _running(command: str, directory: Path, environment: Mapping[str, str]) -> Iterator[re.Match[str]]:
    """Start a pool, yield its output with the address once it is ready, and stop it at the end."""
    log = directory / "pool.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=directory, env=environment, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: process.poll() is not None or READY.search(log.read_text()), f"{command}", START_TIMEOUT_S)
        ready = READY.search(log.read_text())
        assert ready is not None, f"{command} ended: {log.read_text()[-2000:]}"
        yield ready
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


def _results(
    texts: Sequence[str], directory: Path, environment: Mapping[str, str], shell: Sequence[str], timeout_s: float
) -> list[tuple[int, str]]:
    """Run commands in one shell; return the exit status and the output of each."""
    mark = "=#=#= end of command"
    script = "".join(f"{{ {text}\n}} 2>&1\nstatus=$?; echo; echo '{mark}' $status\n" for text in texts)
    (directory / "page.sh").write_text(script)
    # Unlike the timeout of `run`, this one also ends the commands that the shell has started.
    done = subprocess.run(
        ["timeout", "--kill-after=10", f"{timeout_s}", *shell, "page.sh"],
        stdin=subprocess.DEVNULL,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    parts = re.findall(rf"(.*?)\n{mark} (\d+)\n", done.stdout, re.DOTALL)
    assert len(parts) == len(texts), f"not complete within {timeout_s:g} s: {texts[len(parts)]}: {done.stderr}"
    return [(int(status), output) for output, status in parts]


def _differences(page: Path, todo: Sequence[Command], results: Sequence[tuple[int, str]]) -> list[str]:
    found = []
    for command, (status, output) in zip(todo, results, strict=True):
        name = command.text.split()[0]
        fails = re.search(rf"^{re.escape(name)}( \w+)*: ", command.output, re.MULTILINE) is not None
        where = f"{page.name}:{command.line}: {command.text}"
        if fails != bool(status):
            found.append(f"{where}: exit status {status}\n{output}")
        elif command.output and not agrees(command.output, output):
            found.append(f"{where}: shown\n{command.output}\nprinted\n{output}")
    return found


@dataclass(frozen=True)
class Row:
    """A row of the table of commands: a page, the beginning of its commands, and their test or why there is none."""

    page: str
    begins: str
    test: str
    reason: str


def table() -> list[Row]:
    """Return the table of commands."""
    with (SOURCE / "contributor" / "commands.csv").open(newline="") as file:
        return [Row(*row) for row in list(csv.reader(file))[1:]]


def row_of(page: str, command: Command, rows: Sequence[Row]) -> Row | None:
    """Return the row of a command: the one with the longest matching beginning, None if none matches."""
    fitting = [row for row in rows if row.page == page and command.text.startswith(row.begins)]
    return max(fitting, key=lambda row: len(row.begins), default=None)


def pages() -> dict[str, list[Command]]:
    """Return the commands of all pages that have any, by the name of the page below doc/source, or `README`."""
    found = {page.relative_to(SOURCE).with_suffix("").as_posix(): commands(page) for page in SOURCE.rglob("*.rst")}
    found[README] = commands(path_of(README))
    return {name: found[name] for name in sorted(found) if found[name]}


def path_of(name: str) -> Path:
    """Return the file of a page."""
    return ROOT / "README.md" if name == README else SOURCE / f"{name}.rst"


def main() -> None:
    """Print for each page the numbers of its commands: all, those tested as shown, and those tested otherwise."""
    rows = table()
    counts: dict[str, tuple[int, ...]] = {}
    for name, shown in pages().items():
        tests = [row.test for one in shown if (row := row_of(name, one, rows))]
        exactly = tests.count(PAGES_TEST)
        counts[name] = (len(shown), exactly, sum(map(bool, tests)) - exactly)
    counts["all"] = tuple(map(sum, zip(*counts.values(), strict=True)))
    for name, (total, exactly, otherwise) in counts.items():
        print(f"{name:30} {total:4} commands, {exactly:4} run as shown, {otherwise:4} with other arguments")


if __name__ == "__main__":
    main()
