"""What Nova was last seen to have of a host, and what it did not tell because a part of it did not answer."""

import logging
from collections.abc import Set as AbstractSet

from fpga_pool.drivers.runners.nova_servers import Server, Servers
from fpga_pool.model.agent.guests import Key
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound, ServiceUnavailable

LOG = logging.getLogger(__name__)


class NovaView:
    """The servers of one host of the pool.

    Nova leaves the servers of a cell that does not answer out of its list, and says that all is well
    (`[api] list_records_by_skipping_down_cells`).  So what is missing is gone only where Nova says so of itself.
    """

    def __init__(self, nova: Servers) -> None:
        self._nova = nova
        self.servers: dict[Key, Server] = {}
        #: Servers, by uuid, of which Nova could not tell when it told of the others: these are as they were.
        self.unseen: set[str] = set()

    @property
    def uuids(self) -> set[str]:
        """The uuids of all."""
        return {server.uuid for server in self.servers.values()}

    def read(self, running: AbstractSet[str]) -> set[str]:
        """Ask Nova; of the guests that run here and are processes, return those for which it has no server any more.

        `running` and what is returned are uuids.  ServiceUnavailable where a guest is all that is
        known, and Nova cannot tell of its server.
        """
        known = {server.uuid: server for server in self.servers.values()}
        found = {server.uuid: server for server in self._nova.list()}
        unseen, gone = set(), set()
        for uuid in (known.keys() | running) - found.keys():
            try:
                server = self._nova.show(uuid)
            except NotFound:
                gone.add(uuid)
            except InvalidInput as error:
                LOG.warning("server %s is left alone: %s", uuid, error)
            except (Conflict, ServiceUnavailable) as error:
                if uuid not in known:
                    raise
                LOG.warning("server %s is taken to be as it was: %s", uuid, error)
                found[uuid] = known[uuid]
                unseen.add(uuid)
            else:
                found |= {uuid: server} if server.home == self._nova.home else {}
        self.servers = self._by_key(found)
        self.unseen = unseen
        return gone & running

    def _by_key(self, found: dict[str, Server]) -> dict[Key, Server]:
        """Return servers by process; of two that are one, by a request whose answer was lost, the first stays."""
        by_key: dict[Key, Server] = {}
        for server in sorted(found.values(), key=lambda server: (server.created, server.uuid)):
            first = by_key.setdefault(server.about.key, server)
            if first is not server:
                LOG.warning("process %s: server %s is deleted, %s is it", server.about.key, server.uuid, first.uuid)
                try:
                    self._nova.delete(server.uuid)
                except FpgaPoolError as error:  # it is there at the next look, too
                    LOG.warning("server %s: %s", server.uuid, error)
        return by_key
