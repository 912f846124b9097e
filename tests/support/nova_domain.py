"""The description of a server by Nova and libvirt, reduced to its port."""

_DOMAIN = """<domain><name>instance-1</name><uuid>{server}</uuid><metadata>
  <n:instance xmlns:n="http://openstack.org/xmlns/libvirt/nova/1.1"><n:owner><n:project uuid="{project}">x</n:project>
  </n:owner><n:ports><n:port uuid="{port}"><n:ip type="fixed" address="{address}" ipVersion="4"/></n:port></n:ports>
  </n:instance></metadata><devices>
  <interface type="bridge"><target dev="tap{port:.11}"/>{limits}</interface></devices></domain>"""


def domain(*, server: str, port: str, address: str, project: str = "demo", limits: str = "") -> str:
    """Return the description of a server (by its uuid) with one port; `limits` are those of libvirt for its tap."""
    return _DOMAIN.format(server=server, port=port, address=address, project=project, limits=limits)
