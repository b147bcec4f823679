"""TokenReview and SubjectAccessReview: whose token is this, and may that user do this. Pure data."""

from typing import Any

import msgspec

from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = ["ACCESS_REVIEW", "TOKEN_REVIEW", "AccessReview", "TokenReview", "User", "access_review", "token_review"]


class User(msgspec.Struct, frozen=True):
    """authentication.k8s.io/v1 UserInfo."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class TokenReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class TokenReview(msgspec.Struct, frozen=True):
    """The answer to a token review. Its spec, which contains the token, is not decoded."""

    metadata: ObjectMeta
    status: TokenReviewStatus = TokenReviewStatus()


class AccessReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class AccessReview(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: AccessReviewStatus = AccessReviewStatus()


TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", TokenReview, namespaced=False)
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", AccessReview, namespaced=False
)


def token_review(token: str) -> dict[str, Any]:
    """Builds a review that asks whose token this is. A token for another audience than the API server is invalid."""
    return _body(TOKEN_REVIEW, {"token": token})


def access_review(user: User, path: str) -> dict[str, Any]:
    """Builds a review that asks if a user may `get` a non-resource path."""
    who = {"user": user.username, "uid": user.uid, "groups": user.groups or (), "extra": user.extra or {}}
    return _body(ACCESS_REVIEW, {**who, "nonResourceAttributes": {"path": path, "verb": "get"}})


def _body(kind: Kind[Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}
