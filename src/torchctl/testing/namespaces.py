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
    """A name that no other test has; `hint` is what a reader recognises it by."""
    slug = re.sub(r"[^a-z0-9]+", "-", hint.lower()).strip("-")[:40].strip("-")
    return f"{slug or 'test'}-{secrets.token_hex(3)}"


async def create_namespace(client: Client, name: str, labels: dict[str, str] | None = None) -> None:
    """Creates a namespace and waits for what kube-controller-manager puts into each: the default service account,
    without which there are no pods, and the API server's authority. Nothing comes into it by itself afterwards.

    Raises TimeoutError: is kube-controller-manager running?
    """
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}
    await client.create(NAMESPACE, body)
    await wait_for(client, SERVICE_ACCOUNT, "default", name, until=_is_there)
    await wait_for(client, _CONFIG_MAP, "kube-root-ca.crt", name, until=_is_there)


def _is_there(state: object) -> bool:
    return state is not None
