import math

import pytest

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.transfer.port import TokenBucket


def test_steady_reader_gets_the_rate():
    """8000 bit/s are 1000 bytes/s: 500 bytes wait for 0.5 s, at first less by the burst of 0.25 s."""
    bucket = TokenBucket(8000, now_s=0.0)
    assert bucket.take(500, now_s=10.0) == pytest.approx(0.25)
    assert bucket.take(500, now_s=10.25) == pytest.approx(0.5)
    assert bucket.take(500, now_s=10.75) == pytest.approx(0.5)


def test_pause_earns_no_more_than_the_burst():
    bucket = TokenBucket(8000, now_s=0.0)
    bucket.take(1000, now_s=0.0)
    assert bucket.take(250, now_s=1000.0) == 0.0
    assert bucket.take(20, now_s=1000.0) == pytest.approx(0.02)


def test_debt_is_shared():
    """Two streams send 1000 bytes at once: the second one waits for both."""
    bucket = TokenBucket(8000, now_s=0.0)
    assert bucket.take(1000, now_s=0.0) == pytest.approx(1.0)
    assert bucket.take(1000, now_s=0.0) == pytest.approx(2.0)


def test_no_limit():
    assert TokenBucket(math.inf, now_s=0.0).take(10**12, now_s=0.0) == 0.0


@pytest.mark.parametrize("rate_bps", [0, -1, math.nan])
def test_rate_that_makes_no_sense(rate_bps):
    with pytest.raises(InvalidInput):
        TokenBucket(rate_bps, now_s=0.0)
