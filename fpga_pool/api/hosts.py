"""Hosts: ``/v1/hosts``."""

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from fpga_pool.api import views
from fpga_pool.api.context import scheduler

hosts = Blueprint("hosts", __name__, url_prefix="/v1/hosts")


@hosts.get("")
def list_hosts() -> ResponseReturnValue:
    """List all hosts, by name."""
    return jsonify({"hosts": [views.host(host) for host in scheduler().hosts()]})
