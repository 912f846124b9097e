from dataclasses import replace

import pytest

from fpga_pool.model.messages.agents import AssignJob
from fpga_pool.model.objects.pool import Host
from fpga_pool.model.values import changed

ASSIGNED = AssignJob(job="j", attempt=1, project_id="p", function="aes", input_bytes=3, order=0, expected_s=1.0)

SEEN = Host(name="h", egress_bps=1.0, ingress_bps=1.0, data_address="::1", data_port=1, heard_at=0.0)


def test_a_changed_value_is_what_replace_makes_of_it():
    assert changed(ASSIGNED, attempt=2, order=5) == AssignJob(
        job="j", attempt=2, project_id="p", function="aes", input_bytes=3, order=5, expected_s=1.0
    )
    assert changed(SEEN, beat=2) == replace(SEEN, beat=2)
    assert changed(ASSIGNED) == ASSIGNED


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="color"):
        changed(ASSIGNED, color="red")
