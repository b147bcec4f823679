"""The fake API server as a transport: a real `Client`, cache and manager run on it unchanged."""

import json
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio.lowlevel
import msgspec

from torchctl.runtime.client.client import Client, WriteFence
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import APPLY_PATCH, JSON_PATCH, HttpRequest
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.kinds import Key
from torchctl.testing.fake.garbage import collect
from torchctl.testing.fake.objects import Body, Objects, Rejection
from torchctl.testing.fake.ownership import APPLY, UPDATE, Actor
from torchctl.testing.fake.patches import BadPatch, json_patched, merge_patched
from torchctl.testing.fake.paths import Asked, asked, by_path
from torchctl.testing.fake.served import Served
from torchctl.testing.fake.watching import Bell, NoStream, Watch, is_selected

__all__ = ["FakeApiServer"]

T = TypeVar("T")

REQUESTS = 10_000
"""The number of requests that are remembered."""


class FakeApiServer:
    """Keeps the objects of some kinds as kube-apiserver and its garbage collector do.

        server = FakeApiServer([Served(CONFIG_MAP), served_by(crd, GREETING)])
        manager = Manager(server.client(), ...)

    It keeps resourceVersions, conflicts, field ownership, finalizers, owner references, generations, the status
    subresource and watches. It does not validate, default or prune objects, and knows no admission, no RBAC, no quota
    and no controllers; namespaces need not be created.

    Args:
        kinds: What is served. Anything else is not found.
        clock: Gives the timestamps.
        seed: Draws uids and generated names.
        intercept: Called before each request; may raise an `ApiError`, as if the server could not be reached.
        collects: Dependents are collected at once, unlike in a cluster. False: whoever runs it collects.
    """

    def __init__(
        self,
        kinds: Sequence[Served],
        *,
        clock: Clock | None = None,
        seed: int = 0,
        intercept: Callable[[HttpRequest], None] = lambda request: None,
        collects: bool = True,
    ) -> None:
        self.kinds = tuple(kinds)
        self._by_path = by_path(self.kinds)
        self.requests: deque[HttpRequest] = deque(maxlen=REQUESTS)
        self.intercept = intercept
        self._collects = collects
        self._clock = clock or SystemClock()
        self.objects = Objects(lambda: self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"), random.Random(seed))
        self._bell = Bell()
        self._watches: set[Watch] = set()

    def __repr__(self) -> str:
        return f"<FakeApiServer at version {self.objects.version} of {', '.join(str(one.kind) for one in self.kinds)}>"

    def client(self, *, field_manager: str = "torchctl", fence: WriteFence | None = None) -> Client:
        """Returns a client of this server."""
        return Client(self, clock=self._clock, field_manager=field_manager, fence=fence)

    def break_watches(self) -> None:
        """Ends all streams, as a lost connection does."""
        for watch in self._watches:
            watch.broken = True
        self._bell.ring(self.kinds)

    def compact(self) -> None:
        """Forgets all changes so far: a watch from an earlier version is refused with 410."""
        self.objects.compact()

    def act(self, change: Callable[[Objects], T]) -> T:
        """Changes objects as a component of the control plane, in no time, and tells those who watch.

        Raises:
            Rejection: The change is refused.
        """
        before = {**self.objects.latest}
        try:
            result = change(self.objects)
            if self._collects and not self.objects.dry:
                collect(self.objects)
            return result
        finally:
            self._bell.ring(kind for kind, version in self.objects.latest.items() if before.get(kind) != version)

    # The promises of a transport.

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        await anyio.lowlevel.checkpoint()
        if gate is not None:
            gate()
        self.intercept(request)
        self.requests.append(request)
        status, body = self._answer(request)
        return HttpResponse(status, {}, msgspec.json.encode(body))

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncGenerator[LineStream]:
        await anyio.lowlevel.checkpoint()
        self.intercept(request)
        self.requests.append(request)
        try:
            watch = self._watch(request)
        except Rejection as rejection:
            yield NoStream(rejection.code, msgspec.json.encode(_status(rejection)))
            return
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    # Answering.

    def _answer(self, request: HttpRequest) -> tuple[int, Body]:
        try:
            self.objects.dry = _is_dry(request)
            return self.act(lambda objects: self._do(request, self._asked(request)))
        except Rejection as rejection:
            return rejection.code, _status(rejection)
        finally:
            self.objects.dry = False

    def _asked(self, request: HttpRequest) -> Asked:
        target = asked(request, self._by_path)
        if target is None:
            raise Rejection(404, "NotFound", "the server could not find the requested resource")
        return target

    def _do(self, request: HttpRequest, target: Asked) -> tuple[int, Body]:
        match request.method:
            case "GET" if target.name:
                return 200, self.objects.get(target.served, target.key)
            case "GET":
                return 200, self._page(target)
            case "POST":
                actor = Actor(target.query.get("fieldManager", "unknown"))
                return 201, self.objects.create(target.served, target.namespace, _body(request), actor)
            case "PUT":
                actor = Actor(target.query.get("fieldManager", "unknown"), subresource=target.subresource)
                return 200, self.objects.replace(target.served, target.key, _body(request), actor)
            case "PATCH":
                return self._patch(request, target)
            case "DELETE" if target.name:
                return 200, self._delete(request, target)
            case "DELETE":
                return 200, self._delete_all(request, target)
        raise Rejection(405, "MethodNotAllowed", f"{request.method} is not allowed")

    def _patch(self, request: HttpRequest, target: Asked) -> tuple[int, Body]:
        manager, patch = target.query.get("fieldManager", "unknown"), _body(request)
        content_type = dict(request.headers)["Content-Type"]
        actor = Actor(manager, APPLY if content_type == APPLY_PATCH else UPDATE, target.subresource)
        if content_type == APPLY_PATCH:
            exists = self.objects.find(target.served, target.key) is not None
            force = target.query.get("force") == "true"
            return 200 if exists else 201, self.objects.apply(target.served, target.key, patch, actor, force=force)

        def patched(old: Body) -> Body:
            try:
                found: Body = json_patched(old, patch) if content_type == JSON_PATCH else merge_patched(old, patch)  # type: ignore[arg-type]  # a list
            except BadPatch as error:
                raise Rejection(422, "Invalid", str(error)) from error
            return found

        return 200, self.objects.change(target.served, target.key, patched, actor)

    def _delete(self, request: HttpRequest, target: Asked) -> Body:
        options = _body(request) if request.body else {}
        body, gone = self.objects.delete(target.served, target.key, options)
        if not gone:
            return body
        kind = target.served.kind
        details = {"name": target.name, "group": kind.group, "kind": kind.plural, "uid": body["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _delete_all(self, request: HttpRequest, target: Asked) -> Body:
        options = _body(request) if request.body else {}
        found = self._selected(target)
        for body in found:
            meta = body["metadata"]
            self.objects.delete(target.served, Key(meta.get("namespace", ""), meta["name"]), options)
        return self._list(target, found, self.objects.version)

    # Reading.

    def _selected(self, target: Asked) -> list[Body]:
        return [body for body in self.objects.all(target.served) if is_selected(body, target.selector)]

    def _page(self, target: Asked) -> Body:
        """Returns one page. Its token names the last object, and pages that follow show newer states of the rest."""
        found, limit = self._selected(target), int(target.query.get("limit", "0"))
        version = self.objects.version
        if after := target.query.get("continue", ""):
            version, *last = json.loads(after)
            if version < self.objects.compacted:
                raise Rejection(410, "Expired", "the continue token is too old")
            found = [body for body in found if [body["metadata"].get("namespace", ""), body["metadata"]["name"]] > last]
        page = found[: limit or None]
        answer = self._list(target, page, version)
        if len(page) < len(found):
            last_one = page[-1]["metadata"]
            token = [version, last_one.get("namespace", ""), last_one["name"]]
            answer["metadata"] |= {"continue": json.dumps(token), "remainingItemCount": len(found) - len(page)}
        return answer

    def _list(self, target: Asked, items: list[Body], version: int) -> Body:
        kind = target.served.kind
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}

    def _watch(self, request: HttpRequest) -> Watch:
        target = self._asked(request)
        query: Mapping[str, str] = target.query
        since = query.get("resourceVersion", "")
        version = int(since) if since not in ("", "0") else self.objects.version
        initial = query.get("sendInitialEvents") == "true"
        if version < self.objects.compacted:
            raise Rejection(410, "Expired", "too old resource version")
        timeout_s = float(query.get("timeoutSeconds", "1800"))
        watch = Watch(self.objects, self._bell, target.served, target.selector, version, timeout_s)
        if initial or since in ("", "0"):
            watch.begin_with(self._selected(target), bookmark=initial)
        return watch


def _body(request: HttpRequest) -> Body:
    found: Body = json.loads(request.body or b"{}")
    return found


def _is_dry(request: HttpRequest) -> bool:
    """Tells if a request is a dry run. A delete with a body is asked for in that alone, as by the real one."""
    if request.method == "DELETE" and request.body:
        return "All" in _body(request).get("dryRun", ())
    return dict(request.query).get("dryRun") == "All"


def _status(rejection: Rejection) -> Body:
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return head | {"message": str(rejection), "reason": rejection.reason, "code": rejection.code}
