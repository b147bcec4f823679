"""The limits and delays of a watch."""

from dataclasses import dataclass

__all__ = ["WatchSettings"]


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Timeouts and back-off of a watch. All times are seconds."""

    page_size: int = 500
    """Objects per page of a list. A page is decoded in one go: at 500 that is about 10 ms of the event loop."""

    streaming_list: bool = True
    """Request the first list as a stream (WatchList). If the server refuses, pages are listed instead."""

    streaming_list_deadline_s: float = 60.0
    """The longest time for a streaming list. Then pages are listed: a proxy may swallow the bookmark that ends it."""

    server_timeout_s: tuple[float, float] = (240.0, 290.0)
    """The server ends a watch after a random time in this range, so that the watches of a fleet do not end together."""

    idle_deadline_s: float = 70.0
    """Silence after which a stream counts as dead once bookmarks were seen. The server sends one about every 60 s.

    The one that ends a streaming list is none of them: Events, by default without a watch cache, get no other (1.36).
    """

    server_grace_s: float = 5.0
    """Time after the server's own timeout at which a stream without any bookmark counts as dead."""

    backoff_base_s: float = 0.8
    backoff_cap_s: float = 30.0
    """Delays double from base to cap, each shortened by up to half at random (client-go and kube-rs: 0.8 to 30)."""

    lost_cap_s: float = 5.0
    """The cap while the API server cannot be reached at all: it bounds how long a watch stays down after an outage."""

    forbidden_cap_s: float = 60.0
    """The cap while the API server says 401 or 403: only an administrator can end that."""

    retry_after_cap_s: float = 60.0
    """The longest Retry-After that is obeyed."""

    healthy_after_s: float = 120.0
    """A stream that lived this long resets the back-off."""

    short_stream_s: float = 5.0
    """A stream that ended sooner is opened again after a back-off, a longer one at once."""

    fruitless_limit: int = 3
    """After this many streams in a row without any event from the same version, list again instead of resuming."""

    absent_after: int = 5
    """After this many answers of 404 in a row (about ten seconds) the kind and its objects are gone."""

    stale_limit: int = 8
    """After this many older lists in a row, accept them: etcd was restored from a backup."""
