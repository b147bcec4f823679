"""Reads requests to the API server back into what they ask for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.kinds import Key
from torchctl.runtime.watch.selector import Selector
from torchctl.testing.fake.served import Served

__all__ = ["Asked", "asked", "by_path"]


@dataclass(frozen=True)
class Asked:
    """The target of a request: a kind, and an object of it unless the name is empty."""

    served: Served
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def selector(self) -> Selector:
        return Selector(self.namespace, self.query.get("labelSelector", ""), self.query.get("fieldSelector", ""))


def by_path(kinds: Iterable[Served]) -> dict[tuple[str, str, str], Served]:
    """Returns the kinds by what their paths have: group, version and plural."""
    return {(served.kind.group, served.kind.version, served.kind.plural): served for served in kinds}


def asked(request: HttpRequest, kinds: Mapping[tuple[str, str, str], Served]) -> Asked | None:
    """Returns what a request asks for, None if no kind is served at its path."""
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    group, version, *rest = ("", *parts[1:]) if parts[0] == "api" else parts[1:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    served = kinds.get((group, version, plural))
    if served is None or (subresource and not (subresource == "status" and served.status)):
        return None
    return Asked(served, namespace, name, subresource, dict(request.query))
