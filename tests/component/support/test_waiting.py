import pytest

from fpga_pool.model.exceptions import ServiceUnavailable
from support.waiting import wait_until


def test_what_is_found_is_returned_after_looks_that_find_nothing():
    found = iter([None, [], 0, "there"])
    assert wait_until(lambda: next(found), "something is there") == "there"
    assert list(found) == []


def test_a_wait_in_vain_says_for_what():
    with pytest.raises(ServiceUnavailable, match="not within 0 s: pigs fly"):
        wait_until(lambda: False, "pigs fly", 0)
