"""Pods as the scripted node reads them. Pure."""

from typing import Any

import msgspec

from torchctl.testing.nodekinds import Pod

__all__ = ["read_pod"]


def read_pod(body: dict[str, Any]) -> Pod:
    """Returns a pod in the form that scripts and gangs know."""
    meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return msgspec.convert({**body, "metadata": meta}, Pod, strict=False)
