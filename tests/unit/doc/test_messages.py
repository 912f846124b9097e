"""The messages, codes and options that troubleshooting pages quote exist in the code."""

import ast
import re
from functools import cache

import pytest
from oslo_config import cfg

from fpga_pool.conf.opts import register_opts
from support.pages import ROOT, SOURCE

PAGES = ("admin/troubleshooting", "admin/faults")
#: Placeholders for names and numbers on a page.
BLANK = re.compile(r"\.\.\.|\b[A-Z]{2,}\b|\d+\.\d")
#: The beginnings of quotations that are not messages.
COMMAND = re.compile(r"(fpga-pool|openstack|curl|df|timedatectl|batch |slot |gang |--)")
#: Names from other programs.
FOREIGN = {"pg_wal"}
WORD = re.compile(r"[\w:./-]+")
OPTION = re.compile(r"\[(\w+)\] (\w+)")


@cache
def literals():
    """Return all string literals of the code, one per line, with a blank for each inserted value."""
    found = set()
    for path in (ROOT / "fpga_pool").rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                found.add("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(re.sub(r"%[-.\d]*[sdrfg]|\{[^}]*\}", "\0", node.value))
    return "\n".join(re.sub(r"\s+", " ", text) for text in found)


def is_message(quoted):
    """Return whether a literal of the code contains all pieces of a quotation between its blanks, in this order."""
    pieces = [piece.strip(" :;,()'") for piece in BLANK.split(quoted)]
    pieces = [piece for piece in pieces if re.search(r"\w", piece)]
    assert sum(map(len, pieces)) >= 8, f"{quoted}: too short to be found"
    return re.search(".*".join(map(re.escape, pieces)), literals()) is not None


@cache
def options():
    conf = cfg.ConfigOpts()
    register_opts(conf)
    return conf


def quotations(page):
    text = re.sub(r"\s+", " ", (SOURCE / f"{page}.rst").read_text())
    return sorted(set(re.findall(r"``(.+?)``", text)))


@cache
def code():
    return "\n".join(path.read_text() for path in (ROOT / "fpga_pool").rglob("*.py"))


@pytest.mark.parametrize("page", PAGES)
def test_quoted_messages_and_codes_are_those_of_the_code(page):
    wrong = []
    for quoted in quotations(page):
        if option := OPTION.fullmatch(quoted):
            known = option[1] == "database" or option[1].startswith("oslo_") or option[2] in options()[option[1]]
        elif COMMAND.match(quoted) or quoted in FOREIGN:
            known = True  # test_commands.py checks our own commands
        elif WORD.fullmatch(quoted):
            known = quoted.split(":")[0] in code() or (ROOT / quoted).exists()
        else:
            known = is_message(re.sub(r"^reconciled [A-Z]+: ", "", quoted))
        if not known:
            wrong.append(quoted)
    assert wrong == []


def test_a_message_that_is_nowhere_is_found():
    assert is_message("host ... waits for approval (fpga-pool-manage host approve)")
    assert not is_message("host ... waits for applause (fpga-pool-manage host approve)")
