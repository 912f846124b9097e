from dataclasses import replace

import pytest

from fpga_pool.model.messages import AssignJob
from fpga_pool.model.values import changed

ASSIGNED = AssignJob(job="j", attempt=1, project_id="p", function="aes", input_bytes=3, order=0, expected_s=1.0)


def test_a_changed_value_is_what_replace_makes_of_it():
    assert changed(ASSIGNED, attempt=2, order=5) == replace(ASSIGNED, attempt=2, order=5)
    assert changed(ASSIGNED) == ASSIGNED


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="color"):
        changed(ASSIGNED, color="red")
