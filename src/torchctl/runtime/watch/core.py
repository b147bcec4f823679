"""The watch state machine: decides the next request and turns each answer into store events.

Theory of operation. The shell asks `next` what to do, does it, and passes the result to `feed`, which returns
the store events. Everything that can happen to a watch is an input, and every recovery is a transition that
is written in the handler of the state it starts from. The machine never ends.

    state           asks for            becomes
    OPENING_LIST    streaming list      RECEIVING_LIST when it opens, PAGING when the server cannot stream lists
    RECEIVING_LIST  (reads)             WATCHING at the bookmark that ends the list, PAGING at the deadline
    PAGING          one page            PAGING, and OPENING after the last page
    OPENING         watch from version  WATCHING
    WATCHING        (reads)             OPENING when the stream ends, a list when its version has expired
    RESTING         a wait              the state that it was entered for

Rules that hold in every state:
- A list replaces everything between `Init` and `InitDone`; a list that broke off starts again with `Init`,
  and the store holds back all items until `InitDone`. So nobody ever sees half a list.
- Versions never go back. A list that is older than the last known version came from a server that lags: it is refused
  and requested again. An event that is not newer than the last one is a replay: it is dropped,
  unless it is a deletion. Only after
  `stale_limit` old lists in a row are they accepted.
- A stream is resumed from the list's, a bookmark's or the last event's version, whichever is newest. It is not
  resumed for ever: after `fruitless_limit` streams without any news, however they ended, list again. A replay is no
  news, a bookmark is.
- A collection that is refused is listed anew when it is served again; the refusal ends, with `Available`, when its
  stream is open. One that is not found `absent_after` times in a row is gone, and `Absent` says so once.
- Every failure rests before it is tried again. Delays grow by cause, so that a long outage does not slow the
  retry of the 403 which an API server answers for a moment after its start.
"""

from enum import Enum
from typing import Generic, TypeVar

from torchctl.runtime.client.codec import (
    Added,
    Bookmark,
    Deleted,
    ErrorLine,
    Modified,
    Page,
    Undecodable,
    WatchLine,
)
from torchctl.runtime.kinds import Object
from torchctl.runtime.watch.backoff import Backoff
from torchctl.runtime.watch.events import (
    Absent,
    Action,
    Applied,
    Available,
    Bookmarked,
    Init,
    InitDone,
    ListPage,
    OpenWatch,
    Removed,
    Skipped,
    StoreEvent,
    Unavailable,
    Wait,
)
from torchctl.runtime.watch.inputs import Closed, ErrorStatus, Failure, Lost, Opened, Rested, Silent
from torchctl.runtime.watch.settings import WatchSettings

__all__ = ["IllegalInput", "State", "WatchMachine"]

T = TypeVar("T", bound=Object)
Events = tuple[StoreEvent[T], ...]
Input = Page[T] | WatchLine[T] | Opened | Failure | Rested


class IllegalInput(Exception):
    """The shell fed an input that cannot happen in this state. This is a defect of the shell."""


class State(Enum):
    OPENING_LIST = "opening list"
    RECEIVING_LIST = "receiving list"
    PAGING = "paging"
    OPENING = "opening"
    WATCHING = "watching"
    RESTING = "resting"


class WatchMachine(Generic[T]):
    """Decides the next request of one watch and translates the answers into store events.

    Times are seconds of any monotonic clock; `jitter` is a random number in [0, 1).
    """

    def __init__(self, settings: WatchSettings | None = None) -> None:
        self._settings = settings or WatchSettings()
        self._backoff = Backoff(self._settings)
        self._streaming_list = self._settings.streaming_list
        self._state = self._list_state
        self._after_rest = self._state
        self._failure: Failure = Closed()
        self._continue = ""
        self._list_version = ""
        self._forced = False
        self._version = ""
        self._seen = 0
        self._opened_at = 0.0
        self._fruitful = False
        self._bookmarks_seen = False
        self._server_timeout_s = self._settings.server_timeout_s[1]
        self._fruitless = 0
        self._stale = 0
        self._missing = 0
        self._refused = False

    def __repr__(self) -> str:
        return f"<WatchMachine {self._state.value} version={self._version or '-'}>"

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_reading(self) -> bool:
        """True while the open stream must be read."""
        return self._state in (State.RECEIVING_LIST, State.WATCHING)

    @property
    def is_listing(self) -> bool:
        """True while the open stream still sends its initial list."""
        return self._state is State.RECEIVING_LIST

    def next(self, jitter: float) -> Action:
        """Returns the next action for the shell. Do not call it while a stream is being read."""
        match self._state:
            case State.PAGING:
                return ListPage(self._settings.page_size, self._continue)
            case State.OPENING_LIST:
                return OpenWatch("", True, self._draw_timeout(jitter))
            case State.OPENING:
                return OpenWatch(self._version, False, self._draw_timeout(jitter))
            case State.RESTING:
                return Wait(self._backoff.delay(self._failure, jitter))
        raise IllegalInput(f"no request is due while {self._state.value}")

    def patience(self, now: float) -> float:
        """Returns the seconds from `now` for which the open stream may still be silent."""
        if self._state is State.RECEIVING_LIST:
            return max(0.0, self._opened_at + self._settings.streaming_list_deadline_s - now)
        if self._bookmarks_seen:
            return self._settings.idle_deadline_s
        return max(0.0, self._opened_at + self._server_timeout_s + self._settings.server_grace_s - now)

    def feed(self, fed: Input[T], now: float) -> Events[T]:
        """Processes an input and returns the resulting events for the store.

        Raises:
            IllegalInput: The input cannot happen in this state.
        """
        match self._state:
            case State.WATCHING:
                return self._watching(fed, now)
            case State.RECEIVING_LIST:
                return self._receiving_list(fed, now)
            case State.PAGING:
                return self._paging(fed)
            case State.OPENING:
                return self._opening(fed, now)
            case State.OPENING_LIST:
                return self._opening_list(fed, now)
            case State.RESTING:
                return self._resting(fed)

    # One handler a state.

    def _opening_list(self, fed: Input[T], now: float) -> Events[T]:
        match fed:
            case Opened():
                self._open(State.RECEIVING_LIST, now)
                return (Init(),)
            case ErrorStatus(is_unsupported=True):
                return self._give_up_streaming()
            case ErrorStatus() | Lost():
                return self._rest(fed, State.OPENING_LIST)
        raise self._illegal(fed)

    def _receiving_list(self, fed: Input[T], now: float) -> Events[T]:
        match fed:
            case Added(obj) | Modified(obj):
                return (Applied(obj),)
            case Deleted(obj):
                return (Removed(obj),)
            case Undecodable():
                return (Skipped(fed),)
            case Bookmark(initial_events_end=False):
                return ()
            case Bookmark(version):
                return self._end_streaming_list(version, now)
            case Silent():
                return self._give_up_streaming()
            case Closed() | Lost():
                return self._break_streaming_list(fed)
            case ErrorLine():
                return self._break_streaming_list(_refusal(fed))
        raise self._illegal(fed)

    def _paging(self, fed: Input[T]) -> Events[T]:
        match fed:
            case Page():
                return self._turn(fed)
            case ErrorStatus(is_expired=True) | ErrorStatus(is_unsupported=True):
                self._continue = ""  # the server does not take the token, and never will
                return self._rest(fed, State.PAGING)
            case ErrorStatus() | Lost():
                # The continue token of a broken list stays valid for minutes: retry the same page.
                return self._rest(fed, State.PAGING)
        raise self._illegal(fed)

    def _opening(self, fed: Input[T], now: float) -> Events[T]:
        match fed:
            case Opened():
                self._open(State.WATCHING, now)
                return self._served()
            case ErrorStatus(is_expired=True):
                return self._list_anew(fed)
            case ErrorStatus(is_throttled=True) | Lost():
                return self._rest(fed, State.OPENING)
            case ErrorStatus():
                return self._resume(fed)
        raise self._illegal(fed)

    def _watching(self, fed: Input[T], now: float) -> Events[T]:
        match fed:
            case Added(obj) | Modified(obj):
                return (Applied(obj),) if self._advance(obj.metadata.resource_version) else ()
            case Deleted(obj):
                # Never dropped: some servers send the object's last version. The store recognises a replay.
                self._advance(obj.metadata.resource_version)
                return (Removed(obj),)
            case Bookmark(version):
                self._bookmarks_seen = True
                if number(version) == self._seen:
                    self._bear_fruit()  # a quiet collection
                return (Bookmarked(version),) if self._advance(version) else ()
            case Undecodable():
                return (Skipped(fed),) if self._advance(fed.resource_version) else ()
            case ErrorLine():
                self._close(now)
                refused = _refusal(fed)
                return self._list_anew(refused) if refused.is_expired else self._resume(refused)
            case Closed():
                return self._end(fed, now)
            case Silent():
                self._close(now)
                if not self._fruitful:
                    return self._resume(fed)
                self._state = State.OPENING
                return ()
            case Lost():
                self._close(now)
                return self._rest(fed, State.OPENING) if self._fruitful else self._resume(fed)
        raise self._illegal(fed)

    def _resting(self, fed: Input[T]) -> Events[T]:
        if not isinstance(fed, Rested):
            raise self._illegal(fed)
        self._state = self._after_rest
        return ()

    def restart(self) -> None:
        """Lists again after a rest. The shell calls it if it no longer knows which events the store received."""
        self._list_anew(Closed())
        self._refused = True  # the end of a refusal may be among what was lost

    # Transitions.

    def _rest(self, failure: Failure, then: State) -> Events[T]:
        self._state, self._after_rest, self._failure = State.RESTING, then, failure
        if isinstance(failure, ErrorStatus) and (failure.is_missing or failure.is_forbidden):
            return self._unavailable(failure)
        self._missing = 0
        return ()

    def _unavailable(self, error: ErrorStatus) -> Events[T]:
        # After a refusal there may be another collection under the same name, so list again.
        self._continue, self._after_rest, self._refused = "", self._list_state, True
        self._missing = self._missing + 1 if error.is_missing else 0
        told = Unavailable(error.message or error.reason or str(error.code), missing=error.is_missing)
        return (told, Absent()) if self._missing == self._settings.absent_after else (told,)

    def _served(self) -> Events[T]:
        """Ends a refusal, now that a stream is open and its list complete."""
        refused, self._refused = self._refused, False
        return (Available(),) if refused else ()

    def _resume(self, failure: Failure) -> Events[T]:
        """Opens the stream again after a rest, or lists anew after too many streams without any event."""
        self._fruitless += 1
        if self._fruitless >= self._settings.fruitless_limit:
            return self._list_anew(failure)
        return self._rest(failure, State.OPENING)

    def _list_anew(self, failure: Failure) -> Events[T]:
        self._continue, self._fruitless = "", 0
        return self._rest(failure, self._list_state)

    def _give_up_streaming(self) -> Events[T]:
        self._streaming_list, self._fruitless = False, 0
        self._continue, self._state = "", State.PAGING
        return ()

    def _break_streaming_list(self, failure: Failure) -> Events[T]:
        self._fruitless += 1
        if self._fruitless >= self._settings.fruitless_limit:
            self._give_up_streaming()
        return self._rest(failure, self._list_state)

    def _end_streaming_list(self, version: str, now: float) -> Events[T]:
        if self._refuses(version):
            return self._rest(Closed(), State.OPENING_LIST)
        self._open(State.WATCHING, now)
        return (*self._adopt(version), *self._served())

    def _turn(self, page: Page[T]) -> Events[T]:
        """Processes a page and continues with the next one."""
        events: list[StoreEvent[T]] = []
        self._missing = 0
        if not self._continue:
            if self._refuses(page.resource_version):
                return self._rest(Closed(), State.PAGING)
            self._list_version = page.resource_version
            events.append(Init())
        events += map(Applied, page.items)
        events += map(Skipped, page.skipped)
        self._continue = page.continue_
        if not self._continue:
            self._state = State.OPENING
            events += self._adopt(self._list_version)
        return tuple(events)

    def _adopt(self, version: str) -> Events[T]:
        """Watches from the version of a complete list."""
        forced, self._forced = self._forced, False
        self._version, self._seen, self._fruitless, self._stale = version, number(version) or 0, 0, 0
        return (InitDone(version, forced),)

    def _open(self, state: State, now: float) -> None:
        self._state, self._opened_at, self._fruitful, self._missing = state, now, False, 0

    def _end(self, closed: Closed, now: float) -> Events[T]:
        """Handles the regular end of a stream: the next one opens at once or soon, as long as streams bring events."""
        lived_s = self._close(now)
        if not self._fruitful:
            return self._resume(closed)
        if lived_s < self._settings.short_stream_s:
            return self._rest(closed, State.OPENING)
        self._state = State.OPENING
        return ()

    def _close(self, now: float) -> float:
        lived_s = now - self._opened_at
        if lived_s >= self._settings.healthy_after_s:
            self._backoff.reset()
        return lived_s

    # Versions.

    def _advance(self, version: str) -> bool:
        """Advances to `version`. Returns False if it is not newer, so that its event is a replay."""
        reached = number(version)
        if reached is not None:
            if reached <= self._seen:
                return False
            self._seen = reached
        self._bear_fruit()
        if version:
            self._version = version
        return True

    def _bear_fruit(self) -> None:
        self._fruitful, self._fruitless = True, 0

    def _refuses(self, version: str) -> bool:
        """Tells if a list of this version is older than what is known, and must be refused."""
        reached = number(version)
        if reached is None or reached >= self._seen:
            self._forced = False
            return False
        self._stale += 1
        self._forced = self._stale > self._settings.stale_limit
        return not self._forced

    @property
    def _list_state(self) -> State:
        return State.OPENING_LIST if self._streaming_list else State.PAGING

    def _draw_timeout(self, jitter: float) -> float:
        low, high = self._settings.server_timeout_s
        self._server_timeout_s = low + (high - low) * jitter
        return self._server_timeout_s

    def _illegal(self, fed: object) -> IllegalInput:
        return IllegalInput(f"{type(fed).__name__} while {self._state.value}")


def number(version: str) -> int | None:
    """Returns a resourceVersion as a number that can be compared; None if it is no number."""
    return int(version) if version.isdecimal() else None


def _refusal(line: ErrorLine) -> ErrorStatus:
    details = line.status.details
    retry_after_s = float(details.retry_after_seconds) if details and details.retry_after_seconds else None
    return ErrorStatus(line.status.code, line.status.reason, line.status.message, retry_after_s)
