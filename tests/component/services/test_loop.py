"""How long loops wait between steps."""

from types import SimpleNamespace

import pytest

from fpga_pool.services import loop as loop_module
from fpga_pool.services.loop import Loop


@pytest.mark.parametrize(
    ("spent_s", "waited_s"),
    [(0.01, 5.0), (0.2, 20.0)],  # a step of 0.2 s is 1 % of 20 s; for a step of 0.01 s, the interval is longer
)
def test_steps_take_at_most_their_share_of_a_processor(monkeypatch, spent_s, waited_s):
    used_s, waits = iter([3.0, 3.0 + spent_s]), []
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(thread_time=lambda: next(used_s)))
    loop = Loop("refit", lambda: False, 5.0, share=0.01)
    loop._wake = SimpleNamespace(clear=lambda: None, wait=lambda seconds: waits.append(seconds) or loop._stop.set())
    loop._run()
    assert waits == [pytest.approx(waited_s)]
