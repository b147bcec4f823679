"""What the operator may do by its role, and what it did by the audit log."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from clusters import CONFIG, OPERATOR

from torchctl.testing.audit import AuditedRequest, read_audit_log

__all__ = ["ALPHA", "IN_ADMISSION", "asked", "granted", "used"]

Right = tuple[str, str, str]
"""API group, resource with its subresource, and verb."""

IN_ADMISSION = {("torchrun.ai", "torchrunjobs/finalizers", "update"), ("operator.torchrun.ai", "identity", "assume")}
"""Asked for by the admission plugin OwnerReferencesPermissionEnforcement, and by our own admission policies: neither
makes a request."""

ALPHA = {("scheduling.k8s.io", "podgroups", verb) for verb in ("create", "delete", "get", "list", "patch", "watch")}
"""Asked for if the API server serves Kubernetes' own gangs. The control plane of test_native_gangs does."""


def asked(log: Path, offset: int = 0) -> list[AuditedRequest]:
    """The requests of the operator's account."""
    return [request for request in read_audit_log(log, offset) if request.user.username == OPERATOR]


def granted(directory: str = "rbac") -> set[Right]:
    """Returns the rights of the role in a directory of config/: `rbac`, or `coordinator` for those that it adds."""
    return {
        (group, resource, verb)
        for role in _roles(CONFIG / directory / "role.yaml")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _roles(path: Path) -> Iterable[dict[str, Any]]:
    return (document for document in yaml.safe_load_all(path.read_text()) if document)


def used(requests: Iterable[AuditedRequest]) -> set[Right]:
    """What these requests needed, but for those that were denied: some tests ask for what they must not get."""
    found: set[Right] = set()
    for request in requests:
        if (ref := request.object_ref) is None or request.was_denied:
            continue
        resource = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
        found.add((ref.api_group, resource, request.verb))
        if request.verb == "patch" and request.response_status.code == 201:
            found.add((ref.api_group, resource, "create"))  # an apply of what does not exist needs both
    return found
