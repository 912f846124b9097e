"""Errors shown to users and operators, each with a stable code.

A code never changes once released, because clients compare it.  REST and RPC each map the classes to HTTP and RPC
errors in one place.  A message says what is wrong, where, and what was expected.
"""

from typing import ClassVar


class FpgaPoolError(Exception):
    """Base of all domain errors."""

    code: ClassVar[str] = "fpga_pool.error"


class InvalidInput(FpgaPoolError):
    """A request with invalid content."""

    code = "fpga_pool.invalid_input"


class NoSuchPath(InvalidInput):
    """A request for a path that the API does not have."""

    code = "fpga_pool.no_such_path"


class InvalidAnswer(FpgaPoolError):
    """An answer that cannot be parsed: it is not from the API of a pool, or is from another version of the API."""

    code = "fpga_pool.invalid_answer"


class UnknownFunction(InvalidInput):
    """A function that is not in the catalogue."""

    code = "fpga_pool.unknown_function"


class UnknownRequester(InvalidInput):
    """A requester that is not a host of the pool."""

    code = "fpga_pool.unknown_requester"


class NoSlotFits(InvalidInput):
    """A function for which the pool has no slot of a suitable kind."""

    code = "fpga_pool.no_slot_fits"


class InvalidCatalogue(InvalidInput):
    """A catalogue that cannot be used; the message names the place."""

    code = "fpga_pool.invalid_catalogue"


class NotFound(FpgaPoolError):
    """An object that does not exist or belongs to another project."""

    code = "fpga_pool.not_found"


class TokenRequired(FpgaPoolError):
    """A request without a valid Keystone token."""

    code = "fpga_pool.token_required"


class Forbidden(FpgaPoolError):
    """A request that the access policy does not allow for the caller's roles."""

    code = "fpga_pool.forbidden"


class QuotaExceeded(FpgaPoolError):
    """A request beyond the project's quota; the message has the limit, the amount used and the amount requested."""

    code = "fpga_pool.quota_exceeded"


class UnsupportedVersion(FpgaPoolError):
    """A request for a microversion that this API does not have."""

    code = "fpga_pool.unsupported_version"


class Conflict(FpgaPoolError):
    """The object was changed concurrently or exists already; the caller should read it again and decide again."""

    code = "fpga_pool.conflict"


class PreconditionFailed(FpgaPoolError):
    """The object's version is not one that the client has seen (If-Match); nothing was changed."""

    code = "fpga_pool.precondition_failed"


class DuplicateId(Conflict):
    """An object with this id exists already."""

    code = "fpga_pool.duplicate_id"


class InvalidTransition(Conflict):
    """An event that the object's state does not allow; the message includes the object's history."""

    code = "fpga_pool.invalid_transition"


class StaleEpoch(Conflict):
    """A command or commit from an owner that has been replaced."""

    code = "fpga_pool.stale_epoch"


class LateMessage(Conflict):
    """A message that is not newer than one received before, because it was repeated or overtaken."""

    code = "fpga_pool.late_message"


class HostTaken(Conflict):
    """A message in the name of a host that another agent represents."""

    code = "fpga_pool.host_taken"


class Unauthenticated(FpgaPoolError):
    """A call between processes of the pool whose sender is not authenticated."""

    code = "fpga_pool.unauthenticated"


class NotEnrolled(Unauthenticated):
    """A call from an agent whose key is not the enrolled key of its host."""

    code = "fpga_pool.not_enrolled"


class ServiceUnavailable(FpgaPoolError):
    """A part of the pool does not answer; the caller should try again later."""

    code = "fpga_pool.unavailable"


class OtherRun(ServiceUnavailable):
    """A call that was signed for a server process that has ended; it must be signed for the present one."""

    code = "fpga_pool.other_run"


class StorageFull(ServiceUnavailable):
    """The database is full; nothing of the request was stored."""

    code = "fpga_pool.storage_full"


class TooManyRequests(ServiceUnavailable):
    """Too many requests of a project or of one kind; the request can be repeated after `retry_after_s` seconds."""

    code = "fpga_pool.too_many_requests"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Contended(ServiceUnavailable):
    """A conflict with concurrent writers; the request can be repeated."""

    code = "fpga_pool.contended"


class BitstreamRefused(FpgaPoolError):
    """A bitstream that is unsigned, altered, or for another board, region kind or function."""

    code = "fpga_pool.bitstream_refused"


class TransferRefused(FpgaPoolError):
    """A data-plane stream that is not accepted; `reason` is a stable keyword that each agent counts."""

    code = "fpga_pool.transfer_refused"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SlotFault(FpgaPoolError):
    """A slot that failed while loading or computing, or that no longer exists."""

    code = "fpga_pool.slot_fault"
