"""A frozen template is known by its digest: what somebody else put under its name is not taken for it.

Only the operator writes status, and status.queueRevision names the ControllerRevision. Its name ends in the digest of
its data, so whoever can make ControllerRevisions, even with our labels and the owner of ours, cannot choose what a job
runs with. The digest is of the JSON as it is stored: an operator that knows fewer fields comes to the same one.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torchctl.api.kube import ControllerRevision

__all__ = ["DIGITS", "is_sealed", "seal"]

DIGITS = 32
"""Hexadecimal digits of a digest, 128 bits: of 40, another template of the same name is found within minutes."""


def seal(data: Mapping[str, Any]) -> str:
    """The digest that names this data: equal for equal JSON values, whatever the order of their keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def is_sealed(revision: ControllerRevision) -> bool:
    """Whether the data is what the name says."""
    return revision.metadata.name.rpartition("-")[2] == seal(revision.data)
