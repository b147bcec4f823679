"""Tells which failures of a preflight another attempt would only repeat."""

from torchctl.api.causes import Cause
from torchctl.api.conditions import JobReason

__all__ = ["permanent"]

_REASONS = {69: JobReason.ETCD_V2_DISABLED, 76: JobReason.PREFLIGHT_FAILED}
"""Reasons by exit status of `torchctl preflight`. After 75 the server only did not answer in time; any other status is
an accident of the container's own."""


def permanent(cause: Cause, exit_code: int | None) -> JobReason | None:
    """Returns why no other attempt can end otherwise; None if one could do better."""
    return _REASONS.get(exit_code or 0) if cause is Cause.RENDEZVOUS_UNREACHABLE else None
