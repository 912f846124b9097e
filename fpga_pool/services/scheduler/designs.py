"""Requests about designs of tenants: a part of `services.scheduler.endpoint`.

The database is authoritative: it is read again before an agent is permitted to load a design.
"""

import hashlib
import logging
from collections.abc import Sequence

from fpga_pool.model.exceptions import BitstreamRefused, Conflict, InvalidInput
from fpga_pool.model.lifecycle.notifications import notifications
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.messages.work import DesignAnswer, DesignChange, DesignContent, DesignGrant, DesignRequest
from fpga_pool.model.objects.bitstreams import Design, DesignState
from fpga_pool.model.preconditions import Seen
from fpga_pool.model.rules.shared.designs import change_design, create_design, unused_design, visible_design
from fpga_pool.model.rules.shared.reports import require_agent
from fpga_pool.rpc.identity import is_by, key_text
from fpga_pool.rpc.tracing import causing_request
from fpga_pool.rpc.transport import Context, answers
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.services.scheduler.writer import repeated
from fpga_pool.services.scheduler_settings import SchedulerSettings
from fpga_pool.store.designs import bitstream_of, remove_design, store_bitstream
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)


class DesignRequests:
    """Answers requests of tenants and operators about designs, and of the agents that load them."""

    _service: SchedulerService

    @answers
    def designs(self, context: Context, page: Page) -> Sequence[Design]:
        with self._service.store.reading() as tx:
            return tx.page(Design, page)

    @answers
    def design(self, context: Context, project_id: str | None, uuid: str) -> Design:
        with self._service.store.reading() as tx:
            return visible_design(tx, uuid, project_id)

    @answers
    def design_content(self, context: Context, uuid: str) -> DesignContent:
        with self._service.store.reading() as tx:
            design = tx.design(uuid)
            return DesignContent(sha256=design.sha256, bitstream=bitstream_of(tx, design))

    @answers
    def create_design(self, context: Context, request: DesignRequest) -> Design:
        service = self._service
        signer = trusted_signer(request, service.settings)
        approve = bool(signer) and service.settings.signed_designs_are_approved

        def create(tx: SqlTransaction) -> Design:
            tx.refuse_stored(Design, [request.uuid])
            if tx.page(Design, Page(project_id=request.project_id, where={"name": (request.name,)})):
                raise Conflict(f"name: the project has a design {request.name!r}; delete it, or choose another name")
            design = create_design(tx, request, service.catalogue, service.clock(), signer, approve=approve)
            store_bitstream(tx, design.uuid, request.bitstream)
            return tx.design(design.uuid)  # with the request as its cause

        design, _ = service.admit(Design, request, create)
        service.publish(notifications(Design, [(design, entry) for entry in design.history]))
        LOG.info("design %s of project %s: %s, %s", design.uuid, design.project_id, design.function, design.state)
        return design

    @answers
    def change_design(self, context: Context, uuid: str, change: DesignChange, seen: Seen = None) -> Design:
        def decide(tx: SqlTransaction) -> tuple[SqlTransaction, Design]:
            tx.cause = causing_request()
            return tx, change_design(tx, uuid, change, self._service.clock(), seen)

        committed, design = repeated(self._service.store.admission, decide)
        self._service.notify(committed)
        LOG.info("design %s: %s, %s", uuid, design.state, "public" if design.public else "private")
        self._service.withdraw_designs()
        self._service.work_arrived("batch")
        return design

    @answers
    def delete_design(self, context: Context, project_id: str | None, uuid: str, seen: Seen = None) -> Design:
        def remove(tx: SqlTransaction) -> Design:
            design = unused_design(tx, uuid, project_id, lambda function: len(tx.design_jobs(function)), seen)
            remove_design(tx, design)
            return design

        design = repeated(self._service.store.admission, remove)
        LOG.info("design %s: deleted", uuid)
        self._service.withdraw_designs()
        return design

    @answers
    def load_design(
        self, context: Context, host: str, agent_id: str, function: str, nonce: str, cached: str
    ) -> DesignAnswer:
        with self._service.store.reading() as tx:
            require_agent(tx.host(host), agent_id)
            design = tx.design_of(function)
            if design is None or design.state is not DesignState.APPROVED:
                state = "deleted" if design is None else str(design.state)
                raise BitstreamRefused(f"bitstream of {function}: its design is {state}, not APPROVED")
            content = b"" if design.sha256 == cached else bitstream_of(tx, design)
        grant = DesignGrant(nonce=nonce, host=host, function=function, manifest=design.manifest, sha256=design.sha256)
        LOG.info("design %s: host %s loads it", design.uuid, host)
        return DesignAnswer(grant=grant, signature=self._service.token_key.sign(grant.signed()), bitstream=content)


def trusted_signer(request: DesignRequest, settings: SchedulerSettings) -> str:
    """Return the trusted key that has signed a design, "" if unsigned; raise InvalidInput for any other signature."""
    if not request.signature:
        return ""
    signed = request.signed(hashlib.sha256(request.bitstream).hexdigest())
    for key in settings.design_signers:
        if is_by(key, request.signature, signed):
            return key_text(key)
    raise InvalidInput("signature: not one of a trusted signer over this manifest and bitstream; submit it without")
