"""Asks the API server who may read a path. All rules are in `core`; this module only sends and waits."""

import anyio
import structlog

from torchctl.runtime.access.core import Access, Ledger, Step, bearer, digest
from torchctl.runtime.access.reviews import ACCESS_REVIEW, TOKEN_REVIEW, access_review, token_review
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError
from torchctl.runtime.clock import Clock

__all__ = ["REVIEW_TIMEOUT_S", "Readers"]

REVIEW_TIMEOUT_S = 10.0
"""Seconds for both reviews together, as in controller-runtime pkg/metrics/filters."""

log = structlog.get_logger("torchctl.access")


class Readers:
    """Admits clients whose bearer token allows `get` on a path. If the API server cannot be asked, nobody new gets in.

    Needs RBAC to create `tokenreviews.authentication.k8s.io` and `subjectaccessreviews.authorization.k8s.io`.

    Args:
        client: Sends the reviews. They run on every replica, so its fence, if any, does not apply.
        clock: Times how long answers stay valid.
        path: The path that clients read.
    """

    def __init__(self, client: Client, clock: Clock, path: str) -> None:
        self._client = client.unfenced()
        self._clock = clock
        self._path = path
        self._ledger = Ledger()
        self._settled: dict[bytes, anyio.Event] = {}

    def __repr__(self) -> str:
        return f"<Readers of {self._path}: {self._ledger!r}>"

    async def access(self, authorization: str) -> Access:
        """Decides about a request with this Authorization header, within `REVIEW_TIMEOUT_S`."""
        token = bearer(authorization)
        if not token:
            return Access.UNAUTHENTICATED
        try:
            with anyio.fail_after(REVIEW_TIMEOUT_S):
                return await self._found(digest(token), token)
        except (ApiError, TimeoutError) as error:
            log.warning("the API server does not say who may read", path=self._path, error=str(error) or "no answer")
            return Access.UNAVAILABLE

    async def _found(self, key: bytes, token: str) -> Access:
        while (answer := self._ledger.ask(key, self._clock.monotonic())) is Step.WAIT:
            await self._settled[key].wait()
        return answer if isinstance(answer, Access) else await self._review(key, token)

    async def _review(self, key: bytes, token: str) -> Access:
        settled = self._settled[key] = anyio.Event()
        access = Access.UNAVAILABLE
        try:
            access = await self._judge(token)
        finally:
            self._ledger.settle(key, access, self._clock.monotonic())
            del self._settled[key]
            settled.set()
        return access

    async def _judge(self, token: str) -> Access:
        whose = await self._client.create(TOKEN_REVIEW, token_review(token))
        if not whose.status.authenticated:
            return Access.UNAUTHENTICATED
        review = await self._client.create(ACCESS_REVIEW, access_review(whose.status.user, self._path))
        return Access.ALLOWED if review.status.allowed else Access.FORBIDDEN
