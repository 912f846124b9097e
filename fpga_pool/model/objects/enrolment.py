"""The admission of a host: the key by which its agent is recognised."""

from dataclasses import dataclass

from fpga_pool.model.fields import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """What is known of the key of a host's agent; `key` is believed, `offered` waits for an operator."""

    host: str
    #: Public keys as text (`rpc.identity.key_text`); "" = none.
    key: str = ""
    offered: str = ""
    #: SHA-256 of the one-time code by which a key is accepted at once; "" = none.
    code_sha256: str = ""
    code_expires_at: Moment = 0.0
    changed_at: Moment = 0.0
