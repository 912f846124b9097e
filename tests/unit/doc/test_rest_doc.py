import re
import sys
from pathlib import Path

import pytest

from fpga_pool.api.errors import HTTP_CODES, STATUS
from fpga_pool.api.operations import OPERATIONS

pytest.importorskip("sphinx", reason="the documentation's extra is not installed")
sys.path.insert(0, str(Path(__file__).parents[3] / "doc" / "source" / "_ext"))
import rest_api as page

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "doc/source/api-ref/index.rst").read_text()
#: The parameters of a path, from the notation of the page to that of OpenAPI.
BRACES = str.maketrans("<>", "{}")
PATHS = re.findall(r"^\.\. rest-api:: (\S+)$", TEXT, re.MULTILINE)


def test_every_operation_is_in_one_table_of_the_page():
    shown = sorted(row[0] for path in PATHS for row in page.operations(path))
    assert shown == sorted(f"``{one.method} {one.path.translate(BRACES)}``" for one in OPERATIONS)


@pytest.mark.parametrize("path", PATHS)
def test_every_class_that_a_table_names_has_a_table_of_fields(path):
    named = set(re.findall(r"\b[A-Z]\w+[a-z]\w*", " ".join(" ".join(row[2:4]) for row in page.operations(path))))
    assert named <= set(page.fields(path))


def test_a_table_says_what_is_required_optional_and_always_there():
    fields = page.fields("/v1/gangs")
    assert ("``cpu_usage``", "a share of a processor, above 0 and 1 at most", "required") in fields["GangRequest"]
    assert ("``name``", "at most 255 characters, no control characters", "optional") in fields["GangRequest"]
    assert ("``cpu_usage``", "number", "always") in fields["Gang"]


def test_every_code_of_an_error_is_on_the_page():
    codes = {kind.code for kind, _ in STATUS if kind.code != "fpga_pool.invalid_catalogue"} | set(HTTP_CODES.values())
    assert {code for code in codes if f"``{code}``" not in TEXT} == set()
