"""Namespaces for tests: a fresh name each, ready for pods, deleted without waiting."""

import re
import secrets

import msgspec

from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.waiting import wait_for

__all__ = ["NAMESPACE", "SERVICE_ACCOUNT", "create_namespace", "fresh_name"]


class Namespace(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class ServiceAccount(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Namespace, namespaced=False)
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", ServiceAccount)
_CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)


def fresh_name(hint: str) -> str:
    """Returns a name that no other test has; it contains `hint` for readers."""
    slug = re.sub(r"[^a-z0-9]+", "-", hint.lower()).strip("-")[:40].strip("-")
    return f"{slug or 'test'}-{secrets.token_hex(3)}"


async def create_namespace(client: Client, name: str, labels: dict[str, str] | None = None) -> None:
    """Creates a namespace and waits until pods can be created in it.

    kube-controller-manager adds the default service account, without which there are no pods, and the API server's
    authority. Afterwards nothing more appears in it by itself.

    Raises TimeoutError, for instance if kube-controller-manager does not run.
    """
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}
    await client.create(NAMESPACE, body)
    await wait_for(client, SERVICE_ACCOUNT, "default", name, until=_is_there)
    await wait_for(client, _CONFIG_MAP, "kube-root-ca.crt", name, until=_is_there)


def _is_there(state: object) -> bool:
    return state is not None
