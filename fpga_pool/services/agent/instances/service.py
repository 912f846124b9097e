"""All instances of a host that use its slots."""

import logging
import threading
from pathlib import Path

from fpga_pool.drivers.guests.domain import parse
from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.agent.instances.hook import HookServer
from fpga_pool.services.agent.instances.supervisor import LOOK_S, InstanceSupervisor, Parts
from fpga_pool.services.loop import Loop

LOG = logging.getLogger(__name__)


class Instances:
    """Answers the hypervisor's questions, and follows every instance that has slots or should have.

    `start` and `stop` are called once each.
    """

    def __init__(self, parts: Parts, hook_socket: Path) -> None:
        self._parts = parts
        self._hook_socket = hook_socket
        self._lock = threading.Lock()
        self._supervisors: dict[str, InstanceSupervisor] = {}
        self._hook: HookServer | None = None
        self._looking = Loop(f"instances-{parts.host}", self._look_at_holds, LOOK_S)

    def start(self) -> None:
        """Take up the instances that slots are kept for, and listen."""
        self._hook = HookServer(self._hook_socket, self.asked)
        self._looking.start()
        self._parts.driver.watch(self.changed)

    def stop(self) -> None:
        """End; guests keep their slots and ports, and are served again after the next start."""
        if self._hook is not None:
            self._hook.close()
        self._looking.stop()
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.close()
        self._parts.driver.close()

    def asked(self, operation: str, xml: str) -> None:
        """Answer the hypervisor's hook: an error keeps a machine from starting."""
        domain = parse(xml)
        if operation == "release":
            self.changed(domain.instance, ended=True)
        elif domain.request is not None:
            try:
                self._supervisor(domain.instance, begins=True).prepare(domain)
            except MessagingError as error:
                raise ServiceUnavailable(f"the pool's scheduler does not answer: {error}") from error
            except FpgaPoolError as error:
                LOG.warning("instance %s: must not start: %s", domain.instance, error)
                raise

    def changed(self, instance: str, *, ended: bool = False) -> None:
        """Look at an instance that may have begun or ended to run; "" = at all."""
        if not instance:
            self._look_at_all()
            return
        with self._lock:
            supervisor = self._supervisors.get(instance)
        if supervisor is not None and ended:
            supervisor.ended()
        elif supervisor is not None:
            supervisor.wake()

    def _look_at_all(self) -> None:
        """Follow machines that run with an accelerator flavor although no slot is kept for them, as well."""
        try:
            for domain in self._parts.driver.running():
                if domain.request is not None:
                    self._supervisor(domain.instance)
        except FpgaPoolError as error:
            LOG.warning("%s", error)
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.wake()

    def _look_at_holds(self) -> bool:
        """Follow the instances that slots are kept for, whoever asked for that, and whenever."""
        for instance in self._parts.holds.instances():
            self._supervisor(instance)
        return False

    def _supervisor(self, instance: str, *, begins: bool = False) -> InstanceSupervisor:
        with self._lock:
            if instance not in self._supervisors:
                self._supervisors[instance] = InstanceSupervisor(instance, self._parts, self._may_end)
            if begins:
                self._supervisors[instance].begin()
            return self._supervisors[instance]

    def _may_end(self, instance: str) -> bool:
        """Say whether nothing is left to do for an instance; its supervisor is forgotten then."""
        with self._lock:
            supervisor = self._supervisors.get(instance)
            if supervisor is None or not supervisor.is_idle:
                return False
            del self._supervisors[instance]
            return True
