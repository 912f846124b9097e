"""Whether the REST API keeps up with a load, its response times, and the CPU time of each process.

    REST_LOAD_S=300 pytest tests/benchmarks/test_rest_load.py -s --timeout 0

300 GETs and 100 submissions per second (`rest_load.py`) to a pool as an operator runs it: API, scheduler, one host and
a requester as processes on RabbitMQ and MariaDB, with tokens validated by Keystone's middleware.  Keystone is replaced
by `support.keystone`; each process of the API queries it once, and caches the result for five minutes.  Prints rates,
the median, 99th percentile and maximum of the response times by call, and the CPU share of each process.
`REST_LOAD_APIS` processes of the API share the calls equally, each with a separate load process.

    OS_CLOUD=all-in-one pytest tests/benchmarks/test_rest_load.py -s --timeout 0 -k cloud

The same with a running cloud and its Keystone, which has to validate 50 tokens.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import openstack
import pytest

from fpga_pool.client.session import SERVICE_TYPE
from support.deployment import Deployment
from support.keystone import TOKEN, running_keystone
from support.waiting import wait_until

from .test_small_jobs import cpu_s, idle_s

MEASURED_S = float(os.environ.get("REST_LOAD_S", "5"))
APIS = int(os.environ.get("REST_LOAD_APIS", "1"))
GETS_PER_S, SUBMISSIONS_PER_S = 300.0, 100.0
TOKENS = 50
PROGRAM = Path(__file__).with_name("rest_load.py")


@pytest.fixture
def keystone():
    with running_keystone() as keystone:
        keystone.catalogue["identity"] = keystone.account["auth_url"]
        yield keystone


@pytest.fixture
def pool(rabbitmq, mariadb, keystone, tmp_path):
    url = mariadb.new_database()
    checked = {
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": {
            "auth_type": "password",
            "interface": "public",
            "www_authenticate_uri": keystone.account["auth_url"],
            **keystone.account,
        },
    }
    names = ["api", *(f"api-{number}" for number in range(2, APIS + 1))]
    made = Deployment(
        *(tmp_path / "pool", rabbitmq.url, url), agents=1, requesters=1, apis=APIS, own=dict.fromkeys(names, checked)
    )
    try:
        made.prepare()
        for name in made.names:
            made.restart(name)
        wait_until(lambda: answers(made), "the hosts", 240.0)
        yield made
    finally:
        made.close()
    mariadb.drop_database(url)


def answers(pool):
    """Return whether every API responds, and reports that all hosts are alive."""
    for endpoint in pool.endpoints.values():
        asked = ["curl", "--silent", "--fail", "-H", f"X-Auth-Token: {TOKEN}", f"{endpoint}/v1/hosts"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        if not said or sum(host["alive"] for host in json.loads(said)["hosts"]) < len(pool.hosts):
            return False
    return True


def show(seconds, took_s, idle):
    """Print rates and response times."""
    gets = [one for kind, some in seconds.items() if kind.startswith("/") for one in some]
    print(f"\n{len(gets) / took_s:.0f} GET/s, {len(seconds['POST /v1/batches']) / took_s:.0f} submissions/s", end="")
    print(f" for {took_s:.0f} s; {idle:.2f} of the processors idle")
    for kind, some in {**seconds, "GET": gets}.items():
        some.sort()
        middle, late, last = (1000 * some[int(part * (len(some) - 1))] for part in (0.5, 0.99, 1))
        print(f"{kind:24} {len(some):6} answers, ms: {middle:8.1f} (median) {late:8.1f} (99 %) {last:8.1f} (longest)")


@pytest.mark.timeout(1200)
def test_rates_of_the_rest_api(pool, rabbitmq, mariadb):
    rates = [str(rate / APIS) for rate in (GETS_PER_S, SUBMISSIONS_PER_S)]
    loads = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), endpoint, TOKEN, str(MEASURED_S), *rates],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for endpoint in pool.endpoints.values()
    ]  # fmt: skip
    assert [load.stdout.readline() for load in loads] == ["ready\n"] * len(loads)
    processes = {name: pool.pid(name) for name in pool.names}
    processes |= {server.name: server._process.pid for server in (rabbitmq, mariadb)}
    processes |= {f"load {number}": load.pid for number, load in enumerate(loads, 1)}
    before_s, idle, began_s = cpu_s(processes), idle_s(), time.monotonic()
    for load in loads:
        load.stdin.write("go\n")
        load.stdin.flush()
    found = [json.loads(load.stdout.readline()) for load in loads]
    took_s, used_s = time.monotonic() - began_s, cpu_s(processes)
    idle = (idle_s() - idle) / took_s
    for load in loads:
        load.communicate("end\n")
    seconds = {}
    for one in found:
        for kind, some in one["seconds"].items():
            seconds.setdefault(kind, []).extend(some)
    show(seconds, took_s, idle)
    shares = {name: (used_s[name] - before_s[name]) / took_s for name in processes}
    print("processors used:", ", ".join(f"{name} {share:.2f}" for name, share in shares.items()))
    assert [one["errors"] for one in found] == [{}] * len(found)


@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("default")
@pytest.mark.skipif("OS_CLOUD" not in os.environ, reason="OS_CLOUD names no cloud with the pool in it")
def test_rates_with_the_keystone_of_a_cloud():
    user = openstack.connect()
    endpoint = user.session.get_endpoint(service_type=SERVICE_TYPE)
    hosts = user.session.get(f"{endpoint}/v1/hosts").json()["hosts"]
    tokens = []
    for _ in range(TOKENS):
        user.session.invalidate()
        tokens.append(user.session.get_token())
    command = [sys.executable, str(PROGRAM), endpoint, ",".join(tokens), str(MEASURED_S)]
    rates = [str(GETS_PER_S), str(SUBMISSIONS_PER_S), hosts[0]["name"]]
    load = subprocess.Popen([*command, *rates], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert load.stdout.readline() == "ready\n"
    idle = idle_s()
    said, _ = load.communicate("go\nend\n")
    found = json.loads(said)
    show(found["seconds"], found["took_s"], (idle_s() - idle) / found["took_s"])
    assert found["errors"] == {}
