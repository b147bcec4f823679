"""Reads the API server's audit log."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

__all__ = ["AuditedRequest", "AuditedUser", "ObjectRef", "read_audit_log"]


class AuditedUser(msgspec.Struct, frozen=True):
    username: str = ""


class ObjectRef(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    subresource: str = ""


class ResponseStatus(msgspec.Struct, frozen=True):
    code: int = 0


class AuditedRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of an audit.k8s.io/v1 Event that are read."""

    stage: str
    verb: str
    request_uri: str = msgspec.field(name="requestURI")
    user: AuditedUser = AuditedUser()
    user_agent: str = ""
    object_ref: ObjectRef | None = None
    response_status: ResponseStatus = ResponseStatus()
    request_received_timestamp: str = ""
    stage_timestamp: str = ""
    annotations: dict[str, str] = {}

    @property
    def is_write(self) -> bool:
        return self.verb not in ("get", "list", "watch")

    @property
    def was_denied(self) -> bool:
        """True if RBAC refused the request. Refusals by quotas or policies do not count."""
        return self.annotations.get("authorization.k8s.io/decision") == "forbid"


_DECODER = msgspec.json.Decoder(AuditedRequest)


def read_audit_log(path: Path, offset: int = 0) -> Iterator[AuditedRequest]:
    """Yields the answered requests, in the order of their answers.

    Args:
        path: `ControlPlane.audit_log`.
        offset: bytes to skip: the file's size at an earlier moment.
    """
    with path.open("rb") as log:
        log.seek(offset)
        for line in log:
            if line.endswith(b"\n"):  # the last line may be half written
                request = _DECODER.decode(line)
                if request.stage == "ResponseComplete":
                    yield request
