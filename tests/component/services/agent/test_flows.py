"""Commands about flows: which plan an agent applies to a stream."""

from fpga_pool.drivers.egress.pacing import PacingDriver
from fpga_pool.model.messages.agents import ReleaseFlow, ShapeFlow
from fpga_pool.model.objects.pool import RateSegment


def shape(now_s, made_s, bps):
    """Return a plan that is dispatched `made_s` seconds from now."""
    return ShapeFlow(
        job="j",
        attempt=1,
        source_address="192.0.2.1",
        source_port=5000,
        destination_address="192.0.2.2",
        destination_port=9512,
        dispatched_at=now_s + made_s,
        transfer=(RateSegment(-60.0, 600.0, bps),),
    )


def test_a_later_plan_takes_the_place_of_the_one_held_to_and_an_earlier_one_is_refused(new_bench, clock, until):
    driver, now_s = PacingDriver(), clock()
    bench = new_bench(egress=driver)

    def told(action):
        return bench.execute(bench.commands.command(action, slot=""))

    def rates():
        return [limit.rate_bps for limit in driver.flows()]

    assert told(shape(now_s, 0.0, 4e6)) == ["accepted"]
    assert told(shape(now_s, 2.0, 6e6)) == ["accepted"]
    until(lambda: rates() == [6e6])
    assert told(shape(now_s, 1.0, 5e6)) == ["refused"]
    # A plan with the same time is for another stream of the attempt, or a repetition.
    assert told(shape(now_s, 2.0, 7e6)) == ["accepted"]
    until(lambda: rates() == [7e6])
    assert told(ReleaseFlow(job="j", attempt=1)) == ["accepted"]
    until(lambda: rates() == [])
