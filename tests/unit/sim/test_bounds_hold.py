"""No batch in simulated time ends before its lower bound, counted from the same instant as its makespan."""

import numpy as np
import pytest

from fpga_pool.core.makespan import Ect, Ljf, Sjf
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import BatchState
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.pool import Delays, SimulatedPool
from support.seeds import seeds
from support.simulated import QUICK, fresh_hosts

NO_DELAY = Delays(command_s=0.0, staging_s=0.0, turnaround_s=0.0)
BATCHES = 5


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    functions = {"aes": (0.01, "small", "large"), "sha256": (0.3, "small", "large"), "flow": (0.6, "large")}
    return make_catalogue(functions, slots=["small", "small", "large"], load_s=0.5, b_s_per_byte=1e-6)


def request(rng, uuid):
    """Return up to 12 jobs with inputs of 100 bytes to 3 MB: small ones that delay no plan, and large ones."""
    jobs = tuple(
        JobRequest(
            uuid=f"{uuid}.{i}", name="", function=str(rng.choice(["aes", "sha256", "flow"])),
            requester=f"node-{rng.integers(1, 4)}", input_bytes=int(10 ** rng.uniform(2, 6.5)),
        )
        for i in range(rng.integers(1, 13))
    )  # fmt: skip
    return BatchRequest(uuid=uuid, project_id="p", user_id="u", name="", policy="", jobs=jobs)


@pytest.mark.parametrize("policy", [QUICK, Ect(), Sjf(), Ljf()], ids=lambda policy: policy.name)
@pytest.mark.parametrize("seed", seeds(3, 6))
def test_no_makespan_is_below_its_bound(catalogue, policy, seed):
    """Batches arrive while others run, slots load before time 0, and links carry 8 Mbit/s to 8 Gbit/s."""
    rng = np.random.default_rng(seed)
    egress_bps, ingress_bps = 10 ** rng.uniform(6.9, 9.9, 2)
    hosts = fresh_hosts(catalogue, "fast", hosts=3, cards=1, egress_bps=egress_bps, ingress_bps=ingress_bps)
    pool = SimulatedPool(catalogue, hosts, PoolSettings(dispatch_lead_s=rng.uniform(0.0, 1.0)), NO_DELAY)
    requests = [request(rng, f"b{number}") for number in range(BATCHES)]
    for one, at_s in zip(requests, np.cumsum(rng.exponential(1.0, BATCHES)).tolist(), strict=True):
        pool.submit_at(at_s, one)
    pool.run(policy, seed=seed)
    outcomes = [pool.outcome(one.uuid) for one in requests]
    assert {outcome.batch.state for outcome in outcomes} == {BatchState.COMPLETED}
    for outcome in outcomes:
        assert outcome.makespan_s >= outcome.batch.lower_bound_s - 1e-6
