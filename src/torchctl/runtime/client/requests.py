"""Requests to the API server as values: built without I/O, compared in tests, sent by a transport."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from torchctl.runtime.kinds import Kind

__all__ = [
    "HttpRequest",
    "Propagation",
    "apply",
    "create",
    "delete",
    "delete_collection",
    "dry",
    "get",
    "json_patch",
    "list_page",
    "merge_patch",
    "pod_exec",
    "pod_log",
    "port_forward",
    "replace",
    "watch",
]

REQUEST_TIMEOUT_S = 10.0
"""The default deadline of a request in seconds; a `Client` sets its own."""

JSON = "application/json"
APPLY_PATCH = "application/apply-patch+yaml"  # every JSON text is YAML
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
"""Accepts only the metadata of an object, or of each object in a list."""

Query = tuple[tuple[str, str], ...]
Propagation = Literal["Background", "Foreground", "Orphan"]
Verb = Literal["get", "list", "watch", "create", "apply", "patch", "update", "delete", "deletecollection"]

_WRITES = frozenset({"create", "apply", "patch", "update", "delete", "deletecollection"})


class HttpRequest(msgspec.Struct, frozen=True):
    """One request.

    Attributes:
        method: The HTTP method.
        path: Escaped, without the query.
        verb: The Kubernetes verb, for metrics.
        query: Parameters in order, not yet escaped.
        headers: Without Authorization, which the transport adds.
        body: The bytes to send, or None.
        timeout_s: Seconds until the answer is complete; for a watch, until it begins.
    """

    method: str
    path: str
    verb: Verb
    query: Query = ()
    headers: Query = (("Accept", JSON),)
    body: bytes | None = None
    timeout_s: float = REQUEST_TIMEOUT_S

    @property
    def target(self) -> str:
        """The path and query as they are sent."""
        return f"{self.path}?{self.query_string}" if self.query else self.path

    @property
    def query_string(self) -> str:
        """The query as it is sent."""
        return _encoded(self.query) if self.query else ""

    @property
    def is_write(self) -> bool:
        return self.verb in _WRITES

    @property
    def is_urgent(self) -> bool:
        """True for the Lease: leadership ends if such a request has to wait."""
        return self.path.startswith("/apis/coordination.k8s.io/") and self.verb not in ("list", "watch")

    @property
    def is_bulk(self) -> bool:
        """True if the answer may be large or slow: a list, a watch, a log."""
        return self.verb in ("list", "watch") or self.path.endswith("/log")


def get(kind: Kind[Any], name: str, namespace: str = "", *, subresource: str = "") -> HttpRequest:
    return HttpRequest("GET", _object(kind, name, namespace, subresource), "get", headers=_accept(kind))


def list_page(
    kind: Kind[Any],
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    limit: int = 500,
    continue_: str = "",
    resource_version: str = "",
) -> HttpRequest:
    """Builds a request for one page of a list, of the newest state unless `resource_version` is set."""
    query = _query(
        labelSelector=labels,
        fieldSelector=fields,
        limit=str(limit) if limit else "",
        **{"continue": continue_},
        # The server refuses a version together with a continue token, which contains its own.
        resourceVersion="" if continue_ else resource_version,
    )
    return HttpRequest("GET", _collection(kind, namespace), "list", query, _accept(kind, "List"))


def watch(
    kind: Kind[Any],
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    resource_version: str = "",
    send_initial_events: bool = False,
    timeout_s: float,
) -> HttpRequest:
    """Builds a watch of the changes after `resource_version`, which the server ends after `timeout_s`.

    With `send_initial_events` the stream begins with the existing objects and a bookmark that ends them (KEP-3157).
    A server that does not support that answers 400 or 422.
    """
    query = _query(
        watch="true",
        allowWatchBookmarks="true",
        timeoutSeconds=str(max(1, round(timeout_s))),
        labelSelector=labels,
        fieldSelector=fields,
        resourceVersion=resource_version,
        sendInitialEvents="true" if send_initial_events else "",
        resourceVersionMatch="NotOlderThan" if send_initial_events else "",
    )
    return HttpRequest("GET", _collection(kind, namespace), "watch", query, _accept(kind))


def create(
    kind: Kind[Any], body: bytes, namespace: str = "", *, name: str = "", subresource: str = "", manager: str = ""
) -> HttpRequest:
    """Builds the creation of an object or, with `name` and `subresource`, of a subresource (a pod's `binding`, ...)."""
    path = _object(kind, name, namespace, subresource) if subresource else _collection(kind, _need(kind, namespace))
    return _write("POST", path, "create", body, JSON, _query(fieldManager=manager))


def apply(
    kind: Kind[Any],
    name: str,
    body: bytes,
    namespace: str = "",
    *,
    manager: str,
    force: bool = False,
    subresource: str = "",
    dry_run: bool = False,
) -> HttpRequest:
    """Builds a server-side apply, which creates the object or sets the fields of `manager` to those of `body`."""
    query = _query(
        fieldManager=manager,
        force="true" if force else "",
        dryRun="All" if dry_run else "",
    )
    return _write("PATCH", _object(kind, name, namespace, subresource), "apply", body, APPLY_PATCH, query)


def merge_patch(
    kind: Kind[Any], name: str, body: bytes, namespace: str = "", *, subresource: str = "", manager: str = ""
) -> HttpRequest:
    path = _object(kind, name, namespace, subresource)
    return _write("PATCH", path, "patch", body, MERGE_PATCH, _query(fieldManager=manager))


def json_patch(
    kind: Kind[Any], name: str, body: bytes, namespace: str = "", *, subresource: str = "", manager: str = ""
) -> HttpRequest:
    path = _object(kind, name, namespace, subresource)
    return _write("PATCH", path, "patch", body, JSON_PATCH, _query(fieldManager=manager))


def replace(
    kind: Kind[Any], name: str, body: bytes, namespace: str = "", *, subresource: str = "", manager: str = ""
) -> HttpRequest:
    path = _object(kind, name, namespace, subresource)
    return _write("PUT", path, "update", body, JSON, _query(fieldManager=manager))


def delete(kind: Kind[Any], name: str, body: bytes, namespace: str = "") -> HttpRequest:
    """Builds a delete. `body` is a DeleteOptions, see `delete_options`."""
    return _write("DELETE", _object(kind, name, namespace), "delete", body, JSON)


def delete_collection(
    kind: Kind[Any], body: bytes, namespace: str = "", *, labels: str = "", fields: str = ""
) -> HttpRequest:
    """Builds a delete of all objects that match. `body` is a DeleteOptions."""
    query = _query(labelSelector=labels, fieldSelector=fields)
    return _write("DELETE", _collection(kind, _need(kind, namespace)), "deletecollection", body, JSON, query)


def dry(request: HttpRequest) -> HttpRequest:
    """Returns the same write as a dry run: everything is checked and answered, and nothing is kept."""
    if request.method == "DELETE" and request.body:  # the server reads the options from one place only
        return msgspec.structs.replace(request, body=request.body.rstrip()[:-1] + b',"dryRun":["All"]}')
    others = tuple(one for one in request.query if one[0] != "dryRun")
    return msgspec.structs.replace(request, query=(*others, ("dryRun", "All")))


def delete_options(
    *, uid: str = "", resource_version: str = "", propagation: Propagation = "Background", grace_s: int | None = None
) -> Mapping[str, Any]:
    """Builds a DeleteOptions: deletes only the object with that uid and version, dependents by `propagation`."""
    preconditions = dict(_query(uid=uid, resourceVersion=resource_version))
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation,
    }
    if preconditions:
        options["preconditions"] = preconditions
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options


def pod_log(
    name: str,
    namespace: str,
    *,
    container: str = "",
    limit_bytes: int = 0,
    follow: bool = False,
    previous: bool = False,
    timestamps: bool = False,
    since: datetime | None = None,
    tail: int | None = None,
) -> HttpRequest:
    """Builds a request for a container's log; `since` counts in whole seconds, because the API server cuts the rest."""
    query = _query(
        container=container,
        limitBytes=str(limit_bytes) if limit_bytes else "",
        follow="true" if follow else "",
        previous="true" if previous else "",
        timestamps="true" if timestamps else "",
        sinceTime=since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if since else "",
        tailLines="" if tail is None else str(tail),
    )
    return HttpRequest("GET", _pod(name, namespace, "log"), "get", query, (("Accept", "*/*"),))


def port_forward(name: str, namespace: str) -> HttpRequest:
    """Builds the handshake for connections to a pod's ports. RBAC: see `portforward`."""
    return HttpRequest("GET", _pod(name, namespace, "portforward"), "get", (), ())


def pod_exec(
    name: str, namespace: str, command: Sequence[str], *, container: str = "", stdin: bool = False, tty: bool = False
) -> HttpRequest:
    """Builds the handshake for a command in a container. With a terminal its errors come with its output."""
    flags = _query(
        container=container,
        stdin="true" if stdin else "",
        stdout="true",
        stderr="" if tty else "true",
        tty="true" if tty else "",
    )
    words = tuple(("command", word) for word in command)
    return HttpRequest("GET", _pod(name, namespace, "exec"), "get", (*words, *flags), ())


def _pod(name: str, namespace: str, subresource: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}/{subresource}"


def _write(method: str, path: str, verb: Verb, body: bytes, content_type: str, query: Query = ()) -> HttpRequest:
    return HttpRequest(method, path, verb, query, (("Accept", JSON), ("Content-Type", content_type)), body)


def _accept(kind: Kind[Any], of: str = "") -> Query:
    return (("Accept", METADATA.format(of) if kind.metadata_only else JSON),)


@lru_cache(maxsize=64)
def _encoded(query: Query) -> str:
    """Nearly all writes have one of a few queries."""
    return urlencode(query, quote_via=quote)


def _query(**parameters: str) -> Query:
    return tuple((name, value) for name, value in parameters.items() if value)


def _collection(kind: Kind[Any], namespace: str) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace:
        return f"{root}/namespaces/{quote(namespace, safe='')}/{kind.plural}"
    return f"{root}/{kind.plural}"


def _object(kind: Kind[Any], name: str, namespace: str, subresource: str = "") -> str:
    if not name:
        raise ValueError(f"{kind} without a name")
    path = f"{_collection(kind, _need(kind, namespace))}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def _need(kind: Kind[Any], namespace: str) -> str:
    if kind.namespaced and not namespace:
        raise ValueError(f"{kind} is namespaced: say in which namespace")
    return namespace
