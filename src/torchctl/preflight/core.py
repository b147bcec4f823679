"""Judges from an etcd server's answers if it has the v2 API, which torchrun's backends etcd and etcd-v2 need.

An etcd that has the v2 API switched off (the default of 3.4 and 3.5) or has none (3.6) answers, is healthy, and
makes every torchrun fail with a bare connection error. A request for a key shows the difference: the v2 API
answers in JSON even if there is no such key, and a server without it does not know the path. Messages show only the
version of an answer, because the server may be anything.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from torchctl.workspace.errors import Refused, Unreachable

__all__ = ["KEYS", "VERSION", "Answer", "NotUsable", "OutOfReach", "Silence", "V2Off", "judge"]

VERSION = "/version"
KEYS = "/v2/keys/torch/elastic?quorum=true"
"""The key of torchrun's rendezvous (etcd_rendezvous_backend.py), with a quorum read."""

_KEY_NOT_FOUND = 100
_NEEDS_USER = 110
_CLUSTER_TROUBLE = range(300, 500)
_LATER = frozenset({408, 425, 429})
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}([-+][A-Za-z0-9.-]{1,32})?\Z")


class NotUsable(Refused):
    """The server is no etcd that torchrun can use. Its administrator, or the job's author, must change something."""

    exit_code = 76


class V2Off(NotUsable):
    """The server is etcd, and its v2 API is off."""

    exit_code = 69


class OutOfReach(Unreachable):
    """No server answered in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer."""

    status: int
    body: str = ""


@dataclass(frozen=True, slots=True)
class Silence:
    """The reason why there is no answer. One may come later."""

    why: str


def judge(where: str, version: Answer | Silence, keys: Answer | Silence) -> Silence | None:
    """Decides if torchrun can use the server for its rendezvous.

    Args:
        where: host:port, for messages.
        version: The answer to VERSION.
        keys: The answer to KEYS.

    Returns:
        None if it can, else the reason why there is no decision yet.

    Raises:
        V2Off: It is etcd without its v2 API.
        NotUsable: It is no etcd, or requires something that torchrun cannot provide.
    """
    if isinstance(keys, Silence):
        return keys
    error = _object(keys.body).get("errorCode")
    if error == _KEY_NOT_FOUND or (keys.status == 200 and "node" in _object(keys.body)):
        return None
    if error == _NEEDS_USER:
        raise NotUsable(
            f"etcd at {where} wants a user and a password, which torchrun has no way to give",
            next_step="Switch the authentication of its v2 API off, or use rdzvBackend c10d",
        )
    if error in _CLUSTER_TROUBLE or keys.status >= 500 or keys.status in _LATER:
        return Silence(f"it answers with status {keys.status}")
    if isinstance(version, Silence):
        return version
    raise _refused(where, version)


def _refused(where: str, version: Answer) -> NotUsable:
    """Returns the error for a server that does not know the path."""
    number = str(_object(version.body).get("etcdserver"))
    if not _VERSION.match(number):
        return NotUsable(
            f"what answers at {where} is not etcd",
            next_step="Correct rdzvEndpoint, or the protocol in rdzvConf, or use rdzvBackend c10d",
        )
    if _is_gone(number):
        return V2Off(
            f"etcd {number} at {where} answers, but has no v2 API any more",
            next_step="Use etcd 3.4 or 3.5 started with --enable-v2, or use rdzvBackend c10d",
        )
    return V2Off(
        f"etcd {number} at {where} answers, but its v2 API is off",
        next_step="Start it with --enable-v2 (etcd 3.4 or 3.5), or use rdzvBackend c10d",
    )


def _is_gone(version: str) -> bool:
    """Tells if no flag can enable the v2 API, because it was removed in 3.6."""
    major, minor = re.findall("[0-9]+", version)[:2]
    return (int(major), int(minor)) >= (3, 6)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
