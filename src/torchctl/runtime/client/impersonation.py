"""Impersonation: in whose name requests are sent, as the headers that the API server reads. Pure.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

__all__ = ["Impersonation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """A user in whose name requests are sent. Whoever sends them needs the right to impersonate that user.

    Raises:
        ValueError: Groups, a uid or extra values without a user, or a control character in one of them.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.user and (self.groups or self.uid or self.extra):
            raise ValueError("a group, a uid or extra values can only be impersonated together with a user")
        if not all(value.isprintable() for _, value in self.headers):
            raise ValueError("a name to impersonate has a control character in it")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of every request; the header of groups repeats."""
        named = (("Impersonate-User", self.user), ("Impersonate-Uid", self.uid))
        return (
            *((name, value) for name, value in named if value),
            *(("Impersonate-Group", group) for group in self.groups),
            *(
                (f"Impersonate-Extra-{quote(key.lower(), safe='')}", value)
                for key, values in self.extra.items()
                for value in values
            ),
        )
