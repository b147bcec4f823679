import pytest

from torchctl.runtime.client.codec import Added, Bookmark, Deleted, ErrorLine, Modified, Page, Undecodable
from torchctl.runtime.kinds import LEASE, Key, Lease, ObjectMeta, Status, StatusDetails
from torchctl.runtime.watch.core import IllegalInput, Input, State, WatchMachine
from torchctl.runtime.watch.events import (
    Absent,
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
from torchctl.runtime.watch.inputs import Closed, ErrorStatus, Lost, Opened, Rested, Silent
from torchctl.runtime.watch.settings import WatchSettings

GONE = Status(code=410, reason="Expired")
BROKEN = Status(code=500, reason="InternalError")


def lease(name: str, version: int) -> Lease:
    return Lease(ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version=str(version)))


def page(version: int, *items: Lease, continue_: str = "") -> Page[Lease]:
    return Page(items=items, skipped=(), resource_version=str(version), continue_=continue_)


class Driver:
    """A machine with a clock that is moved by hand."""

    def __init__(self, settings: WatchSettings | None = None) -> None:
        self.machine: WatchMachine[Lease] = WatchMachine(settings)
        self.now = 1000.0

    def __call__(self, *inputs: Input[Lease], after_s: float = 0.0) -> list[StoreEvent[Lease]]:
        self.now += after_s
        return [event for fed in inputs for event in self.machine.feed(fed, self.now)]

    def ask(self) -> object:
        return self.machine.next(0.0)

    def rest(self) -> float:
        """Sits out the rest that is due and returns how long it was."""
        action = self.ask()
        assert isinstance(action, Wait)
        self(Rested(), after_s=action.seconds)
        return action.seconds


@pytest.fixture
def paged() -> Driver:
    return Driver(WatchSettings(streaming_list=False))


@pytest.fixture
def streamed() -> Driver:
    return Driver()


@pytest.fixture
def watching(paged: Driver) -> Driver:
    """Watching from version 10."""
    paged(page(10), Opened())
    return paged


class TestLists:
    def test_list_is_read_by_pages_and_watched_from_its_version(self, paged: Driver) -> None:
        assert paged.ask() == ListPage(limit=500)
        assert paged(page(10, lease("a", 3), continue_="next")) == [Init(), Applied(lease("a", 3))]
        assert paged.ask() == ListPage(limit=500, continue_="next")
        assert paged(page(10, lease("b", 4))) == [Applied(lease("b", 4)), InitDone("10")]
        assert paged.ask() == OpenWatch("10", send_initial_events=False, server_timeout_s=240.0)

    def test_an_expired_continue_token_begins_the_list_anew(self, paged: Driver) -> None:
        paged(page(10, lease("a", 3), continue_="next"), ErrorStatus(410, "Expired"))
        paged.rest()
        assert paged.ask() == ListPage(limit=500)
        assert paged(page(20)) == [Init(), InitDone("20")]

    def test_refused_continue_token_begins_the_list_anew(self, paged: Driver) -> None:
        """A server answers 400 to a token that it cannot read, such as another server's."""
        paged(page(10, lease("a", 3), continue_="next"), ErrorStatus(400, "BadRequest"))
        paged.rest()
        assert paged.ask() == ListPage(limit=500)

    @pytest.mark.parametrize("fault", [Lost("reset"), ErrorStatus(503), ErrorStatus(429, retry_after_s=1.0)])
    def test_a_page_that_did_not_come_is_asked_for_again(self, paged: Driver, fault: Lost | ErrorStatus) -> None:
        paged(page(10, lease("a", 3), continue_="next"), fault)
        paged.rest()
        assert paged.ask() == ListPage(limit=500, continue_="next")

    def test_undecodable_items_are_skipped_and_named(self, paged: Driver) -> None:
        what = Undecodable(LEASE, Key("ns", "bad"), "expected int")
        bad = Page(items=(lease("a", 3),), skipped=(what,), resource_version="10", continue_="")
        assert paged(bad) == [Init(), Applied(lease("a", 3)), Skipped(what), InitDone("10")]

    def test_list_older_than_the_known_version_is_read_again(self, watching: Driver) -> None:
        watching(ErrorLine(GONE))
        watching.rest()
        assert watching(page(9, lease("ghost", 5))) == []
        watching.rest()
        assert watching(page(11)) == [Init(), InitDone("11")]

    def test_repeated_old_lists_are_believed_in_the_end(self) -> None:
        """etcd may have been restored from a backup."""
        driver = Driver(WatchSettings(streaming_list=False, stale_limit=2))
        driver(page(10), Opened(), ErrorLine(GONE))
        for _ in range(2):
            driver.rest()
            assert driver(page(5)) == []
        driver.rest()
        assert driver(page(5)) == [Init(), InitDone("5", forced=True)]
        assert driver(Opened(), Added(lease("a", 6))) == [Applied(lease("a", 6))]


class TestStreamingLists:
    def test_a_streaming_list_becomes_the_watch(self, streamed: Driver) -> None:
        assert streamed.ask() == OpenWatch("", send_initial_events=True, server_timeout_s=240.0)
        assert streamed(Opened(), Added(lease("a", 3))) == [Init(), Applied(lease("a", 3))]
        assert streamed(Bookmark("10", initial_events_end=True)) == [InitDone("10")]
        assert streamed(Modified(lease("a", 11))) == [Applied(lease("a", 11))]
        assert streamed.machine.state is State.WATCHING

    def test_changes_during_a_streaming_list_are_passed_on(self, streamed: Driver) -> None:
        streamed(Opened())
        assert streamed(Modified(lease("a", 9)), Deleted(lease("a", 10))) == [
            Applied(lease("a", 9)),
            Removed(lease("a", 10)),
        ]

    @pytest.mark.parametrize("code", [400, 422])
    def test_server_without_streaming_lists_is_asked_for_pages(self, streamed: Driver, code: int) -> None:
        streamed(ErrorStatus(code))
        assert streamed.ask() == ListPage(limit=500)
        streamed(page(10), Opened(), ErrorLine(GONE))
        streamed.rest()
        assert streamed.ask() == ListPage(limit=500)

    def test_endless_streaming_list_falls_back_to_pages(self, streamed: Driver) -> None:
        streamed(Opened(), Added(lease("a", 3)))
        assert streamed.machine.patience(streamed.now + 59) == 1.0
        assert streamed(Silent(), after_s=60) == []
        assert streamed.ask() == ListPage(limit=500)

    def test_broken_streaming_list_falls_back_to_pages_in_the_end(self, streamed: Driver) -> None:
        """The list begins anew a few times before that."""
        for _ in range(2):
            streamed(Opened(), Added(lease("a", 3)), Closed())
            streamed.rest()
            assert streamed.ask() == OpenWatch("", send_initial_events=True, server_timeout_s=240.0)
        streamed(Opened(), Closed())
        streamed.rest()
        assert streamed.ask() == ListPage(limit=500)

    def test_a_streaming_list_of_a_server_that_lags_is_refused(self, streamed: Driver) -> None:
        streamed(Opened(), Bookmark("10", initial_events_end=True), ErrorLine(GONE))
        streamed.rest()
        assert streamed(Opened(), Bookmark("9", initial_events_end=True)) == [Init()]
        streamed.rest()
        assert streamed.ask() == OpenWatch("", send_initial_events=True, server_timeout_s=240.0)

    def test_streaming_lists_that_break_fall_back_to_pages(self, streamed: Driver) -> None:
        """As behind a proxy that cuts each of them."""
        for _ in range(3):
            streamed(Opened(), Added(lease("a", 3)), Lost("reset"))
            streamed.rest()
        assert streamed.ask() == ListPage(limit=500)

    def test_an_outage_does_not_count_against_streaming(self, streamed: Driver) -> None:
        for _ in range(10):
            streamed(Lost("refused"))
            streamed.rest()
        assert streamed.ask() == OpenWatch("", send_initial_events=True, server_timeout_s=240.0)


class TestStreams:
    def test_lines_become_events(self, watching: Driver) -> None:
        what = Undecodable(LEASE, Key("ns", "bad"), "expected int", resource_version="13")
        assert watching(Added(lease("a", 11)), Deleted(lease("a", 12)), what, Bookmark("14")) == [
            Applied(lease("a", 11)),
            Removed(lease("a", 12)),
            Skipped(what),
            Bookmarked("14"),
        ]

    def test_a_replay_is_dropped(self, watching: Driver) -> None:
        watching(Added(lease("a", 11)), Deleted(lease("a", 12)))
        assert watching(Added(lease("a", 11))) == []

    def test_deletion_of_an_old_version_is_passed_on(self, watching: Driver) -> None:
        """An aggregated API server may send the version that the object had last."""
        watching(Added(lease("a", 11)), Added(lease("b", 12)))
        assert watching(Deleted(lease("a", 11))) == [Removed(lease("a", 11))]
        assert watching(Added(lease("a", 11))) == []

    @pytest.mark.parametrize("version", ["11", "15"])
    def test_ended_stream_resumes_at_once_from_the_newest_version(self, watching: Driver, version: str) -> None:
        watching(Added(lease("a", 11)))
        if version == "15":
            watching(Bookmark("15"))
        watching(Closed(), after_s=250)
        assert watching.ask() == OpenWatch(version, send_initial_events=False, server_timeout_s=240.0)

    def test_a_stream_that_ended_soon_is_resumed_after_a_rest(self, watching: Driver) -> None:
        watching(Added(lease("a", 11)), Closed())
        assert watching.rest() == 0.8

    def test_streams_that_bring_nothing_are_resumed_twice_and_then_listed(self, watching: Driver) -> None:
        for _ in range(2):
            watching(Closed(), after_s=250)
            watching.rest()
            assert watching.ask() == OpenWatch("10", send_initial_events=False, server_timeout_s=240.0)
            watching(Opened())
        watching(Closed(), after_s=250)
        watching.rest()
        assert watching.ask() == ListPage(limit=500)

    def test_streams_that_open_and_break_end_in_a_list(self, watching: Driver) -> None:
        for _ in range(2):
            watching(Lost("reset"))
            watching.rest()
            watching(Opened())
        watching(Lost("reset"))
        watching.rest()
        assert watching.ask() == ListPage(limit=500)

    @pytest.mark.parametrize("end", [Closed(), Lost("reset"), Silent()])
    def test_streams_that_only_replay_end_in_a_list(self, watching: Driver, end: Input[Lease]) -> None:
        for _ in range(2):
            watching(Added(lease("a", 9)), end)
            watching.rest()
            watching(Opened())
        watching(Added(lease("a", 9)), end)
        watching.rest()
        assert watching.ask() == ListPage(limit=500)

    def test_bookmarks_of_a_quiet_collection_are_something(self, watching: Driver) -> None:
        for _ in range(10):
            watching(Bookmark("10"), Closed(), after_s=250)
            assert watching.ask() == OpenWatch("10", send_initial_events=False, server_timeout_s=240.0)
            watching(Opened())

    def test_an_expired_version_in_the_stream_lists_anew(self, watching: Driver) -> None:
        watching(ErrorLine(GONE))
        watching.rest()
        assert watching.ask() == ListPage(limit=500)

    def test_an_expired_version_at_the_opening_lists_anew(self, paged: Driver) -> None:
        paged(page(10), ErrorStatus(410, "Gone"))
        paged.rest()
        assert paged.ask() == ListPage(limit=500)

    def test_another_error_in_the_stream_rests_and_resumes(self, watching: Driver) -> None:
        watching(Added(lease("a", 11)), ErrorLine(BROKEN))
        assert watching.rest() == 0.8
        assert watching.ask() == OpenWatch("11", send_initial_events=False, server_timeout_s=240.0)

    def test_an_error_that_stays_is_listed_around(self, watching: Driver) -> None:
        for _ in range(2):
            watching(ErrorLine(BROKEN))
            watching.rest()
            watching(Opened())
        watching(ErrorLine(BROKEN))
        watching.rest()
        assert watching.ask() == ListPage(limit=500)

    def test_a_lost_connection_resumes_however_long_the_outage(self, watching: Driver) -> None:
        watching(Lost("reset"))
        for _ in range(50):
            watching.rest()
            watching(Lost("refused"))
        watching.rest()
        assert watching.ask() == OpenWatch("10", send_initial_events=False, server_timeout_s=240.0)

    def test_being_throttled_waits_as_told_and_resumes(self, watching: Driver) -> None:
        throttled = Status(code=429, reason="TooManyRequests", details=StatusDetails(retry_after_seconds=7))
        watching(ErrorLine(throttled))
        assert watching.rest() == 7.0
        for _ in range(10):
            watching(ErrorStatus(429, retry_after_s=3.0))
            assert watching.rest() == 3.0
        assert watching.ask() == OpenWatch("10", send_initial_events=False, server_timeout_s=240.0)

    def test_a_silent_stream_is_opened_again_at_once(self, watching: Driver) -> None:
        watching(Bookmark("12"), Silent(), after_s=70)
        assert watching.ask() == OpenWatch("12", send_initial_events=False, server_timeout_s=240.0)

    def test_streams_that_stay_silent_end_in_a_list(self, watching: Driver) -> None:
        watching(Bookmark("12"), Silent(), after_s=70)
        for _ in range(3):
            watching.ask()
            watching(Opened())
            watching(Silent(), after_s=70)
            watching.rest()
        assert isinstance(watching.ask(), ListPage)

    def test_patience_is_short_once_bookmarks_were_seen(self, watching: Driver) -> None:
        assert watching.machine.patience(watching.now) == 295.0
        watching(Bookmark("11"))
        assert watching.machine.patience(watching.now) == 70.0

    def test_end_of_a_streaming_list_promises_no_bookmarks(self, streamed: Driver) -> None:
        """A collection without a watch cache (Events, by default) ends its list with a bookmark, and sends no other."""
        streamed(Opened(), Bookmark("10", initial_events_end=True))
        assert streamed.machine.patience(streamed.now) == 295.0

    def test_the_server_timeout_is_drawn_from_its_range(self, paged: Driver) -> None:
        paged(page(10))
        assert paged.machine.next(0.5) == OpenWatch("10", send_initial_events=False, server_timeout_s=265.0)
        paged(Opened())
        assert paged.machine.patience(paged.now) == 270.0


class TestUnavailability:
    def test_kind_that_is_not_served_is_listed_until_it_is(self, paged: Driver) -> None:
        assert paged(ErrorStatus(404, "NotFound", "no such resource")) == [
            Unavailable("no such resource", missing=True)
        ]
        rests = []
        for _ in range(10):
            rests.append(paged.rest())
            paged(ErrorStatus(404))
        assert max(rests) == 30.0
        paged.rest()
        assert paged(page(10)) == [Init(), InitDone("10")]
        assert paged(Opened()) == [Available()]
        paged(Closed())
        paged.rest()
        assert paged(Opened()) == [], "it was available all the time"

    def test_a_list_alone_does_not_end_a_refusal(self, watching: Driver) -> None:
        """Rights to list and none to watch: the cache is filled again and again, and stale in between."""
        watching(Closed())
        watching.rest()
        told: list[StoreEvent[Lease]] = []
        for number in range(3):
            told += watching(ErrorStatus(403, "Forbidden"))
            watching.rest()
            told += watching(page(11 + number))
        assert Available() not in told
        assert watching(Opened()) == [Available()]

    def test_a_streaming_list_ends_a_refusal_when_complete(self, streamed: Driver) -> None:
        streamed(ErrorStatus(403, "Forbidden"))
        streamed.rest()
        assert streamed(Opened()) == [Init()]
        assert streamed(Bookmark("10", initial_events_end=True)) == [InitDone("10"), Available()]

    def test_a_kind_that_vanishes_is_listed_when_it_is_back(self, watching: Driver) -> None:
        watching(Lost("reset"))
        watching.rest()
        assert watching(ErrorStatus(404)) == [Unavailable("404", missing=True)]
        watching.rest()
        assert watching.ask() == ListPage(limit=500)

    def test_kind_is_gone_after_five_not_founds_in_a_row(self, watching: Driver) -> None:
        watching(Closed())
        told = []
        for _ in range(8):
            watching.rest()
            told.append(watching(ErrorStatus(404))[1:])
        assert told == [[], [], [], [], [Absent()], [], [], []]

    @pytest.mark.parametrize("between", [Lost("reset"), ErrorStatus(403), ErrorStatus(503), page(11)], ids=repr)
    def test_another_answer_in_between_starts_the_count_anew(
        self, watching: Driver, between: Lost | ErrorStatus | Page[Lease]
    ) -> None:
        watching(Closed())
        for number in range(8):
            watching.rest()
            if number == 4:
                watching(between)
                if isinstance(between, Page):
                    watching(Lost("reset"))
            else:
                assert Absent() not in watching(ErrorStatus(404))

    @pytest.mark.parametrize("code", [401, 403])
    def test_a_kind_that_is_forbidden_is_tried_slowly(self, paged: Driver, code: int) -> None:
        rests = []
        for _ in range(12):
            assert paged(ErrorStatus(code, "Forbidden")) == [Unavailable("Forbidden")]
            rests.append(paged.rest())
        assert rests[0] == 0.8
        assert rests[-1] == 60.0


class TestBackoff:
    def test_delays_of_an_outage_double_to_five_seconds(self, watching: Driver) -> None:
        rests = []
        for _ in range(5):
            watching(Lost("refused"))
            rests.append(watching.rest())
        assert rests == [0.8, 1.6, 3.2, 5.0, 5.0]

    def test_causes_have_delays_of_their_own(self, watching: Driver) -> None:
        for _ in range(5):
            watching(Lost("refused"))
            watching.rest()
        watching(ErrorStatus(403))
        assert watching.rest() == 0.8

    def test_jitter_shortens_a_delay_by_up_to_half(self, watching: Driver) -> None:
        watching(Lost("refused"))
        assert watching.machine.next(1.0) == Wait(0.4)

    def test_a_healthy_stream_starts_the_delays_anew(self, watching: Driver) -> None:
        for _ in range(5):
            watching(Lost("refused"))
            watching.rest()
        watching(Opened())
        watching(Lost("reset"), after_s=121)
        assert watching.rest() == 0.8

    def test_retry_after_delays_a_rest_by_at_most_a_minute(self, watching: Driver) -> None:
        """Up to a minute, Retry-After is a lower bound."""
        watching(Lost("reset"))
        watching.rest()
        watching(ErrorStatus(429, retry_after_s=9999.0))
        assert watching.machine.next(0.5) == Wait(60.4)


def test_illegal_input_of_a_state_changes_nothing(paged: Driver) -> None:
    with pytest.raises(IllegalInput, match="Opened while paging"):
        paged(Opened())
    assert paged.ask() == ListPage(limit=500)


def test_a_restart_lists_again_from_any_state(watching: Driver) -> None:
    watching.machine.restart()
    watching.rest()
    assert watching.ask() == ListPage(limit=500)


def test_no_request_is_due_while_a_stream_is_read(watching: Driver) -> None:
    assert watching.machine.is_reading
    with pytest.raises(IllegalInput):
        watching.machine.next(0.0)
