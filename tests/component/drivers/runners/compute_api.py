"""A compute service and its hypervisor in memory, reduced to the requests of the runner and their failures."""

import json
import re
import uuid
from types import SimpleNamespace
from xml.etree import ElementTree

import libvirt
from keystoneauth1.exceptions import ConnectFailure

from fpga_pool.model.exceptions import NotFound, ServiceUnavailable

PAUSED_USER, SHUTDOWN, DESTROYED = (
    libvirt.VIR_DOMAIN_PAUSED_USER,
    libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN,
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED,
)


class Answer:
    """A response of the compute service."""

    def __init__(self, status_code, plain=None):
        self.status_code, self.plain = status_code, plain
        self.ok, self.content, self.reason, self.text = status_code < 400, plain is not None, "", ""

    def json(self):
        return json.loads(self.plain) if isinstance(self.plain, str) else self.plain


class Domain:
    """A guest, with the interface of a libvirt domain."""

    def __init__(self, uuid):
        self.uuid, self.state, self.reason, self.cpu_s, self.element = uuid, libvirt.VIR_DOMAIN_RUNNING, 0, 0.0, None

    def UUIDString(self):  # noqa: N802
        return self.uuid

    def ID(self):  # noqa: N802
        return -1 if self.is_off else 1

    @property
    def is_off(self):
        return self.state == libvirt.VIR_DOMAIN_SHUTOFF

    def name(self):
        return f"instance-{self.uuid[:8]}"

    def isActive(self):  # noqa: N802
        return int(not self.is_off)

    def getCPUStats(self, _):  # noqa: N802
        return [{"cpu_time": int(self.cpu_s * 1e9)}]

    def metadata(self, *_):
        if self.element is None:
            error = libvirt.libvirtError("no metadata")
            error.err = (libvirt.VIR_ERR_NO_DOMAIN_METADATA, libvirt.VIR_FROM_QEMU, "", 0, "", None, None, 0, 0)
            raise error
        return self.element

    def setMetadata(self, _kind, element, *_):  # noqa: N802
        self.element = element

    def end(self, reason):
        self.state, self.reason = libvirt.VIR_DOMAIN_SHUTOFF, reason

    def destroy(self):
        self.end(libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED)

    @property
    def key(self):
        found = ElementTree.fromstring(self.element)
        return found.get("gang"), int(found.get("index")), int(found.get("attempt"))


class Hypervisor:
    """The connection to the libvirtd of one host."""

    def __init__(self):
        self.domains = {}

    def call(self, work):
        try:
            return work(self)
        except libvirt.libvirtError as error:
            raise ServiceUnavailable(str(error)) from error

    def lookup(self, uuid):
        if uuid not in self.domains:
            raise NotFound(uuid)
        return self.domains[uuid]

    def getAllDomainStats(self, *_):  # noqa: N802
        return [(each, {"state.state": each.state, "state.reason": each.reason}) for each in self.domains.values()]


class Tiers:
    """A tier driver that records the places of guests."""

    def __init__(self, hypervisor):
        self.hypervisor, self.placed = hypervisor, {}

    def guests(self):
        ours = [uuid for uuid, domain in self.hypervisor.domains.items() if domain.element and not domain.is_off]
        return [SimpleNamespace(instance=uuid, tier=self.placed.get(uuid, [None])[0]) for uuid in ours]

    def place(self, instance, tier, pcpus):
        self.placed[instance] = tier, list(pcpus)

    def set_tiers(self, tiers):
        for instance, tier in tiers.items():
            self.placed[instance] = tier, self.placed[instance][1]

    def release(self, instance):
        self.placed.pop(instance, None)


class ComputeApi:
    """Nova, Glance and Neutron, as far as the runner uses them. Methods such as `build` do what Nova does later."""

    def __init__(self, hypervisors):
        self.hypervisors = hypervisors
        self.servers, self.asked = {}, []
        self.down = False
        #: Uuids of servers in a cell that does not answer; whether nova-compute is down; number of servers per page.
        self.unheard, self.compute_down, self.page = set(), False, None
        #: A request that matches `lost` is executed, but its answer is lost. One that matches `refused` gets that
        #: answer.
        self.lost = ""
        self.refused = {}
        #: Called with each request, to simulate concurrent actions.
        self.meanwhile = lambda method, path: None
        self.flavor = SimpleNamespace(id="f1", vcpus=1)
        self.specs = {"resources:VCPU": "0"}
        self.images = [SimpleNamespace(id="i1", name="counts", visibility="public", owner_id="somebody")]
        self.compute = SimpleNamespace(request=self.request, find_flavor=lambda _: self.flavor)
        self.image = SimpleNamespace(images=lambda **by: [one for one in self.images if one.name == by["name"]])
        self.network = SimpleNamespace(find_network=lambda name: SimpleNamespace(id=f"net-{name}"))
        self.current_project_id = "pool"

    def request(self, path, method, *, microversion, raise_exc, params=None, connect_retries=None, **body):
        assert (microversion, raise_exc) == ("2.74", False)
        assert (connect_retries is None) is (method == "GET")
        if self.down:
            raise ConnectFailure("refused")
        self.asked.append((method, path))
        self.meanwhile(method, path)
        for pattern, answer in self.refused.items():
            if re.fullmatch(pattern, f"{method} {path}"):
                return answer
        answer = self.answer(method, path.split("/")[1:], body.get("json"), params)
        if self.lost and re.fullmatch(self.lost, f"{method} {path}"):
            raise ConnectFailure("reset by peer")
        return answer

    def answer(self, method, parts, body, params):
        if parts[0] == "flavors":
            return Answer(200, {"extra_specs": self.specs})
        if (method, parts) == ("POST", ["servers"]):
            return self.create(body["server"])
        if parts == ["servers", "detail"]:
            return Answer(200, self.listed(**params))
        server = self.servers.get(parts[1])
        if server is None:
            return Answer(404, {"itemNotFound": {"message": "no such server"}})
        if server["id"] in self.unheard:
            return Answer(200 if method == "GET" else 500, {"server": {"id": server["id"], "status": "UNKNOWN"}})
        if method == "GET":
            return Answer(200, {"server": server})
        self.change(server, parts[2:], body)
        return Answer(200, {})

    def listed(self, tags, sort_key, sort_dir, marker=None):
        """Return a page. Servers in BUILD come first, whatever the order, and may be listed twice."""
        assert (sort_key, sort_dir) == ("created_at", "asc")
        found = [each for each in self.servers.values() if tags in each["tags"] and each["id"] not in self.unheard]
        found.sort(key=lambda each: (each["status"] != "BUILD", each["created"]))
        if self.page is None:
            return {"servers": found + [each for each in found if each["status"] == "BUILD"]}
        begin = 1 + [each["id"] for each in found].index(marker) if marker else 0
        end = begin + self.page
        return {"servers": found[begin:end]} | ({"servers_links": [{"rel": "next"}]} if end < len(found) else {})

    def change(self, server, parts, body):
        if parts == ["tags"]:
            server["tags"] = body["tags"]
        elif parts[0] == "tags":
            server["tags"] = [*server["tags"], parts[1]]
        elif parts == ["metadata"]:
            server["metadata"] |= body["metadata"]
        else:
            [action] = body
            getattr(self, action.replace("-", "_"))(server, body[action])

    def create(self, asked):
        made = {
            "id": str(uuid.uuid4()),
            "status": "BUILD",
            "OS-EXT-STS:task_state": "scheduling",
            "OS-EXT-SRV-ATTR:host": None,
            "created": f"2026-11-22T00:00:{len(self.servers):02}Z",
            "updated": "2026-11-22T00:00:00Z",
            **{name: asked[name] for name in ("name", "metadata", "tags", "host", "networks", "imageRef")},
        }
        self.servers[made["id"]] = made
        return Answer(202, {"server": {"id": made["id"]}})

    # What Nova does asynchronously

    def build(self):
        for server in self.servers.values():
            if server["status"] == "BUILD":
                server |= {
                    "status": "ACTIVE",
                    "OS-EXT-STS:task_state": None,
                    "OS-EXT-SRV-ATTR:host": server["host"],
                }
                self.hypervisors[server["host"]].domains[server["id"]] = Domain(server["id"])

    def domain(self, server):
        return self.hypervisors[server["OS-EXT-SRV-ATTR:host"]].domains[server["id"]]

    def forceDelete(self, server, _):  # noqa: N802
        del self.servers[server["id"]]
        for hypervisor in self.hypervisors.values() if not self.compute_down else ():
            hypervisor.domains.pop(server["id"], None)

    def pause(self, server, _):
        server["status"] = "PAUSED"
        domain = self.domain(server)
        domain.state, domain.reason = libvirt.VIR_DOMAIN_PAUSED, PAUSED_USER

    def unpause(self, server, _):
        server["status"] = "ACTIVE"
        self.domain(server).state = libvirt.VIR_DOMAIN_RUNNING

    def os_migrateLive(self, server, asked):  # noqa: N802
        """Move a server. Its memory and its domain's metadata move with it, and its CPU time starts from 0 again."""
        assert asked["block_migration"] == "auto"
        domain = self.hypervisors[server["OS-EXT-SRV-ATTR:host"]].domains.pop(server["id"])
        server["OS-EXT-SRV-ATTR:host"] = asked["host"]
        domain.cpu_s = 0.0
        self.hypervisors[asked["host"]].domains[server["id"]] = domain
