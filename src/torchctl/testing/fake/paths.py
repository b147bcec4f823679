"""Reads requests to the API server back into what they ask for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.kinds import Key
from torchctl.runtime.watch.selector import Selector
from torchctl.testing.fake.served import Served

__all__ = ["Asked", "asked"]


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


def asked(request: HttpRequest, kinds: Iterable[Served]) -> Asked | None:
    """Returns what a request asks for, None if no kind is served at its path."""
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    group, version, *rest = ("", *parts[1:]) if parts[0] == "api" else parts[1:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    for served in kinds:
        kind = served.kind
        if (kind.group, kind.version, kind.plural) == (group, version, plural):
            if subresource and not (subresource == "status" and served.status):
                return None
            return Asked(served, namespace, name, subresource, dict(request.query))
    return None
