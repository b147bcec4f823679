"""How admission reviews are read, answered and served."""

import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from webhooks import issue

from torchctl.runtime.admission import Admission, Denied, steps
from torchctl.runtime.client.codec import Codec
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.kinds import Kind, PartialObject
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import WebhookSettings
from torchctl.runtime.webhooks import Webhooks
from torchctl.testing.certificates import Authority
from torchctl.testing.clock import ManualClock
from torchctl.testing.fake.patches import json_patched

THING: Kind[PartialObject] = Kind("things.test", "v1", "Thing", "things", PartialObject)

JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text("ab/~", max_size=2), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_patch_makes_one_object_of_another(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert json_patched(before, [*steps(before, after)]) == after


class Served:
    """Webhooks on loopback, and what they answer."""

    def __init__(self, *, cert_dir: str | None = None, clock: Clock | None = None) -> None:
        self.metrics = Metrics(process=False)
        settings = WebhookSettings(host="127.0.0.1", port=0, cert_dir=cert_dir)
        self.webhooks = Webhooks(settings, Codec(), self.metrics, clock or SystemClock())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.webhooks.run)
            yield
            tasks.cancel_scope.cancel()

    async def post(self, path: str, authority: Authority | None = None, **request: Any) -> tuple[int, Any]:
        context = ssl.create_default_context(cadata=authority.certificate.decode() if authority else None)
        if authority is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        body = io.BytesIO(msgspec.json.encode(request))
        url = f"https://127.0.0.1:{self.webhooks.port}{path}"
        async with aiohttp.ClientSession() as session, session.post(url, data=body, ssl=context) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, (await answer.json())["response"] if is_json else await answer.text()


def review(**fields: Any) -> dict[str, Any]:
    return {"uid": "u", "operation": "CREATE", "name": "a", "object": {"metadata": {"name": "a"}}, **fields}


async def test_validator_denies_and_its_failures_answer_500() -> None:
    served = Served()

    async def validate(asked: Admission[PartialObject]) -> None:
        if asked.operation == "DELETE":
            assert asked.object is None
            assert asked.old is not None
            raise Denied("keep it", code=422)
        if asked.username == "nobody":
            raise RuntimeError("a fault")

    served.webhooks.validate("/things", THING, validate)
    async with served.running():
        assert await served.post("/things", request=review()) == (200, {"uid": "u", "allowed": True})
        gone = review(operation="DELETE", object=None, oldObject={"metadata": {"name": "a"}})
        refusal = {"uid": "u", "allowed": False, "status": {"code": 422, "message": "keep it"}}
        assert await served.post("/things", request=gone) == (200, refusal)
        assert (await served.post("/things", request=review(userInfo={"username": "nobody"})))[0] == 500
        assert (await served.post("/things", request=review(object={"metadata": 1})))[0] == 400
        assert (await served.post("/things"))[0] == 400
        assert (await served.post("/others", request=review()))[0] == 404
    sample = served.metrics.registry.get_sample_value
    assert sample("controller_runtime_webhook_panics_total", {"webhook": "/things"}) == 1
    assert sample("controller_runtime_webhook_requests_total", {"webhook": "/things", "code": "200"}) == 2


async def test_objects_of_more_than_a_megabyte_are_reviewed() -> None:
    served = Served()

    async def mutate(asked: Admission[PartialObject]) -> None:
        """Changes nothing."""

    served.webhooks.mutate("/things", THING, mutate)
    large = {"metadata": {"name": "a"}, "data": "x" * 2**21}
    async with served.running():
        assert await served.post("/things", request=review(object=large)) == (200, {"uid": "u", "allowed": True})


def test_two_webhooks_at_one_path_are_refused() -> None:
    served = Served()

    async def mutate(asked: Admission[PartialObject]) -> None:
        """Changes nothing."""

    served.webhooks.mutate("/things", THING, mutate)
    with pytest.raises(ValueError, match="exists already"):
        served.webhooks.mutate("/things", THING, mutate)


async def test_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    """Of another authority, as after a rotation of both. Until the next look the old one is served."""

    async def nothing(asked: Admission[PartialObject]) -> None:
        """Allows all."""

    earlier, later, clock = Authority(), Authority(), ManualClock()
    issue(earlier, tmp_path)
    served = Served(cert_dir=str(tmp_path), clock=clock)
    served.webhooks.validate("/things", THING, nothing)
    async with served.running():
        assert (await served.post("/things", earlier, request=review()))[0] == 200
        issue(later, tmp_path)
        assert (await served.post("/things", earlier, request=review()))[0] == 200
        clock.seconds += 10
        assert (await served.post("/things", later, request=review()))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await served.post("/things", earlier, request=review())
