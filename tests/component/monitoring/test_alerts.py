"""The alerts fire as specified, according to Prometheus's own `promtool test rules`."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parents[3] / "etc" / "fpga_pool" / "prometheus-alerts.yaml"

#: For each alert, the series with which it fires and those of a pool without the problem, in the notation of promtool:
#: "0+5x180" are 181 values, one per 30 s, each larger by 5.
CASES = {
    "FpgaPoolProcessDown": (
        {'up{job="fpga-pool-agent", instance="a"}': "0x180"},
        {'up{job="fpga-pool-agent", instance="a"}': "1x180", 'up{job="other"}': "0x180"},
    ),
    "FpgaPoolShardWithoutOwner": (
        {'fpga_pool_shard_owned{shard="s", instance="1"}': "0x180"},
        {
            'fpga_pool_shard_owned{shard="s", instance="1"}': "0x180",
            'fpga_pool_shard_owned{shard="s", instance="2"}': "1x180",
        },
    ),
    "FpgaPoolShardNotRenewed": (
        {'fpga_pool_shard_lease_age_seconds{shard="s", instance="1"}': "0+30x180"},
        {
            'fpga_pool_shard_lease_age_seconds{shard="s", instance="1"}': "0+30x180",  # a stalled scheduler
            'fpga_pool_shard_lease_age_seconds{shard="s", instance="2"}': "1x180",
        },
    ),
    "FpgaPoolHostLost": (
        {'fpga_pool_hosts{state="lost"}': "1x180"},
        {'fpga_pool_hosts{state="lost"}': "0x180", 'fpga_pool_hosts{state="alive"}': "9x180"},
    ),
    "FpgaPoolHeartbeatsNotAccepted": (
        {"fpga_pool_agent_heartbeat_age_seconds": "0+30x180"},
        {"fpga_pool_agent_heartbeat_age_seconds": "1x180"},
    ),
    "FpgaPoolSlotsFaulted": (
        {
            'fpga_pool_slots{board="b", state="FAULTED"}': "2x180",
            'fpga_pool_slots{board="b", state="READY"}': "10x180",
        },
        {
            'fpga_pool_slots{board="b", state="FAULTED"}': "1x180",
            'fpga_pool_slots{board="b", state="READY"}': "10x180",
        },
    ),
    "FpgaPoolLoadsFail": (
        {
            'fpga_pool_agent_loads_total{function="aes", outcome="refused"}': "0+1x180",
            'fpga_pool_agent_loads_total{function="aes", outcome="loaded"}': "0+5x180",
        },
        {
            'fpga_pool_agent_loads_total{function="aes", outcome="refused"}': "3x180",
            'fpga_pool_agent_loads_total{function="aes", outcome="loaded"}': "0+5x180",
        },
    ),
    "FpgaPoolJobsFail": (
        {'fpga_pool_job_errors_total{code="c"}': "0+1x180"},  # 30 within 15 minutes
        {'fpga_pool_job_errors_total{code="c"}': "100x180"},
    ),
    "FpgaPoolQueueStalls": (
        {
            'fpga_pool_job_oldest_wait_seconds{project="p"}': "0+90x180",
            'fpga_pool_slots{board="b", state="READY"}': "1x180",
        },
        {
            'fpga_pool_job_oldest_wait_seconds{project="p"}': "0+90x180",  # every slot computes
            'fpga_pool_slots{board="b", state="BUSY"}': "1x180",
        },
    ),
    "FpgaPoolPolicyFails": (
        {'fpga_pool_policy_failures_total{family="batch"}': "0+1x180"},
        {'fpga_pool_policy_failures_total{family="batch"}': "7x180"},
    ),
    "FpgaPoolPlansMissed": (
        {
            'fpga_pool_batch_makespan_ratio_sum{policy="ect"}': "0+2x180",
            'fpga_pool_batch_makespan_ratio_count{policy="ect"}': "0+1x180",
        },
        {
            'fpga_pool_batch_makespan_ratio_sum{policy="ect"}': "0+1.1x180",
            'fpga_pool_batch_makespan_ratio_count{policy="ect"}': "0+1x180",
        },
    ),
    "FpgaPoolPlanningSlow": (
        {
            'fpga_pool_planning_seconds_bucket{family="batch", step="decide", le="10"}': "0x180",
            'fpga_pool_planning_seconds_bucket{family="batch", step="decide", le="30"}': "0+1x180",
            'fpga_pool_planning_seconds_bucket{family="batch", step="decide", le="+Inf"}': "0+1x180",
        },
        {
            'fpga_pool_planning_seconds_bucket{family="batch", step="decide", le="10"}': "0+1x180",
            'fpga_pool_planning_seconds_bucket{family="batch", step="decide", le="30"}': "0+1x180",
            'fpga_pool_planning_seconds_bucket{family="batch", step="decide", le="+Inf"}': "0+1x180",
        },
    ),
    "FpgaPoolCommandsUndelivered": (
        {'fpga_pool_undelivered_commands{shard="s"}': "101+1x180"},
        {'fpga_pool_undelivered_commands{shard="s"}': "500 0x179"},
    ),
    "FpgaPoolApiFails": (
        {
            'fpga_pool_api_requests_total{operation="o", status="503"}': "0+1x180",
            'fpga_pool_api_requests_total{operation="o", status="200"}': "0+9x180",
        },
        {
            'fpga_pool_api_requests_total{operation="o", status="404"}': "0+9x180",
            'fpga_pool_api_requests_total{operation="o", status="200"}': "0+9x180",
        },
    ),
    "FpgaPoolMetricsIncomplete": (
        {"fpga_pool_scrape_errors_total": "0+1x180"},
        {"fpga_pool_scrape_errors_total": "4x180"},
    ),
}


def test_every_alert_has_a_case():
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == list(CASES)


@pytest.mark.parametrize("which", [0, 1], ids=["fire", "stay quiet"])
def test_alerts_at_90_minutes(tmp_path, which):
    tests = [
        {
            "name": alert,
            "interval": "30s",
            "input_series": [{"series": series, "values": values} for series, values in cases[which].items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                    "eval_time": "90m",
                    "exp_samples": [{"labels": "{}", "value": 1 - which}],
                }
            ],
        }
        for alert, cases in CASES.items()
    ]
    # JSON is valid YAML.
    (tmp_path / "test.yaml").write_text(json.dumps({"rule_files": [str(RULES)], "tests": tests}))
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
