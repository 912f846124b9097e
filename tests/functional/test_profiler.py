"""A trace of OSProfiler through the API, RabbitMQ, a scheduler and its SQL, read by OSProfiler's own command."""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from osprofiler import profiler

KEY = "a key of operators"
#: Seconds that the command waits for more events (its default is 1), also if few are expected, and its timeout.
IDLE_S, SHORT_IDLE_S, LIMIT_S = 10, 3, 240


@contextlib.contextmanager
def tracing(key):
    """Trace the requests of this thread; yield the id of the trace."""
    try:
        yield profiler.init(key).get_base_id()
    finally:
        profiler.clean()


def show(trace, url, *words, idle_s=IDLE_S, code=0):
    """Return the output of `osprofiler trace show` for a trace."""
    program = Path(sys.executable).with_name("osprofiler")
    where = ("--connection-string", "messaging://", "--transport-url", url, "--idle-timeout", str(idle_s))
    line = [program, "trace", "show", *words, trace, *where]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def traced_command(endpoint, *words):
    """Let `openstack fpga` trace its requests; return the id of the trace, which it prints."""
    program = Path(sys.executable).with_name("openstack")
    line = [program, "--os-auth-type", "none", "--os-endpoint", endpoint, "--os-profile", KEY, "fpga", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return re.search(r"^Trace ID: (\S+)$", done.stderr, re.MULTILINE)[1]


def spans(node):
    """Yield each span below another one in the command's JSON, with the id of its parent."""
    for child in node["children"]:
        yield child
        yield from spans(child)


@pytest.mark.timeout(600)
def test_a_trace_leads_from_the_request_to_the_statements_of_the_scheduler(deployment, rabbitmq, mariadb_url):
    options = {"profiler": {"enabled": True, "hmac_keys": f"another,{KEY}", "trace_sqlalchemy": True}}
    pool = deployment(rabbitmq.url, mariadb_url, agents=1, options=options)
    client = pool.client("p")
    with tracing("a key of nobody") as refused:
        client.batches()
    with tracing(KEY) as base_id:
        client.batches()
    found = list(spans(json.loads(show(base_id, rabbitmq.url, "--json"))))
    of_kind = {}
    for span in found:
        of_kind.setdefault(span["info"]["name"], []).append(span)
    (request,), (call,), statements = of_kind["wsgi"], of_kind["rpc"], of_kind["db"]

    def began(span):
        return span["info"][f"meta.raw_payload.{span['info']['name']}-start"]["info"]

    assert began(request)["request"]["path"] == "/v1/batches"
    assert (request["info"]["service"], request["parent_id"]) == ("fpga-pool-api", base_id)
    assert began(call)["rpc"] == {"method": "batches"}
    assert (call["info"]["service"], call["parent_id"]) == ("fpga-pool-scheduler", request["trace_id"])
    of_statements = {(one["info"]["service"], one["parent_id"]) for one in statements}
    assert of_statements == {("fpga-pool-scheduler", call["trace_id"])}
    assert any("batches" in began(one)["db"]["statement"] for one in statements)
    # An unknown key traces nothing.  The last command is that of the page for operators.
    assert "No events are collected" in show(refused, rabbitmq.url, "--json", idle_s=SHORT_IDLE_S, code=1)
    page = show(traced_command(pool.endpoint, "batch", "list"), rabbitmq.url, "--html", idle_s=SHORT_IDLE_S)
    assert "<html" in page
    assert "/v1/batches" in page
