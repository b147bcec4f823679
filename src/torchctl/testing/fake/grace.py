"""The time that a deletion leaves to an object. Pure."""

from datetime import datetime, timedelta
from typing import Any

from torchctl.testing.fake.served import Served

__all__ = ["grace_s_of", "later", "leaves"]

Body = dict[str, Any]
TIME = "%Y-%m-%dT%H:%M:%SZ"
GRACE_S = 30


def leaves(body: Body) -> bool:
    return "deletionTimestamp" in body["metadata"]


def later(time: str, seconds: float) -> str:
    return (datetime.strptime(time, TIME) + timedelta(seconds=seconds)).strftime(TIME)


def grace_s_of(served: Served, old: Body, options: Body) -> int:
    """Returns the seconds that a deletion leaves to a pod; a deletion that is under way can only become shorter."""
    if not served.graceful:
        return 0
    asked = options.get("gracePeriodSeconds")
    if leaves(old):
        left: int = old["metadata"]["deletionGracePeriodSeconds"]
        return left if asked is None else min(asked, left)
    spec = old.get("spec", {})
    if not spec.get("nodeName") or old.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(spec.get("terminationGracePeriodSeconds", GRACE_S) if asked is None else asked)
