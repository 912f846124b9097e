import pytest

from fpga_pool.core.benefit.plus import TenantLimit


def test_tenant_has_no_more_jobs_inside_than_its_share_of_the_slots():
    limit = TenantLimit(8, 0.25)  # two slots
    assert [limit.lets_in(job, "a") for job in range(3)] == [True, True, False]
    assert limit.lets_in(9, "b")


def test_held_jobs_are_let_in_as_they_came_when_one_leaves():
    limit = TenantLimit(4, 0.25)
    assert [limit.lets_in(job, "a") for job in range(4)] == [True, False, False, False]
    assert limit.gives_up(1, "a")
    assert [limit.left("a") for _ in range(3)] == [2, 3, None]
    assert limit.lets_in(7, "a")


def test_job_that_is_not_held_does_not_give_up_here():
    limit = TenantLimit(4, 0.5)
    assert limit.lets_in(0, "a")
    assert not limit.gives_up(0, "a")
    assert not limit.gives_up(0, "nobody")


def test_everybody_may_have_one_slot():
    assert TenantLimit(3, 0.01).most == 1


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, float("nan")])
def test_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        TenantLimit(4, share)
