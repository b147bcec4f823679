"""Merging the logs of many workers: nothing lost, nothing doubled, memory bounded, whatever comes when."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from torchctl.client.logs.core import Merge, Merged
from torchctl.runtime.client.loglines import LogLine


@given(st.integers(0, 2**32))
def test_every_line_comes_once_in_its_worker_s_order(seed: int) -> None:
    random = Random(seed)
    logs = [
        [LogLine(random.randint(0, 5), str(number)) for number in range(random.randint(0, 20))]
        for _ in range(random.randint(1, 6))
    ]
    merge, now = Merge(0.2, max_total=1000), 0.0
    left = dict(enumerate(logs))
    given_out: list[Merged] = []
    for number in left:
        merge.open(number, now)
    while left or not merge.is_empty:
        now += random.choice([0.0, 0.05, 1.0])
        if left:
            number = random.choice(sorted(left))
            if merge.has_room(number):
                count = random.randint(0, 5)
                merge.feed(number, left[number][:count])
                left[number] = left[number][count:]
            if not left[number]:
                merge.close(number)
                del left[number]
        # At most five lines more than there is room for.
        assert merge.held <= 1000 + len(logs) * 5 * 110
        given_out += merge.take(now, random.randint(1, 10))
    for number, log in enumerate(logs):
        assert [each.line for each in given_out if each.source == number] == log


@given(st.lists(st.lists(st.integers(0, 50), max_size=20).map(sorted), min_size=1, max_size=6), st.data())
def test_logs_that_are_all_at_hand_come_out_in_order(times: list[list[int]], data: st.DataObject) -> None:
    merge = Merge(10.0)
    for number, log in enumerate(times):
        merge.open(number, 0.0)
        merge.feed(number, [LogLine(at, "") for at in log])
        merge.close(number)
    found: list[int] = []
    while not merge.is_empty:
        found += [each.line.at for each in merge.take(0.0, data.draw(st.integers(1, 10)))]
    assert found == sorted(at for log in times for at in log)


def test_a_silent_worker_is_waited_for_only_so_long() -> None:
    merge = Merge(0.2)
    merge.open(0, 0.0)
    merge.open(1, 0.0)
    merge.feed(0, [LogLine(1, "a"), LogLine(2, "b")])
    assert merge.take(0.1) == []
    assert merge.wait_s(0.1) == 0.1
    assert [each.line.text for each in merge.take(0.2)] == ["a", "b"]
    assert merge.wait_s(0.2) is None


def test_worker_that_gave_its_last_line_is_awaited_anew() -> None:
    merge = Merge(0.2)
    merge.open(0, 0.0)
    merge.open(1, 0.0)
    merge.feed(0, [LogLine(1, "a")])
    merge.feed(1, [LogLine(2, "b")])
    assert [each.line.text for each in merge.take(5.0)] == ["a"]
    merge.feed(0, [LogLine(1, "late")])
    assert [each.line.text for each in merge.take(5.0)] == ["late"]
    assert [each.line.text for each in merge.take(5.2)] == ["b"]


def test_a_worker_whose_room_is_full_is_not_read_from() -> None:
    merge = Merge(0.0, max_total=1000)
    for number in range(2):
        merge.open(number, 0.0)
    merge.feed(0, [LogLine(0, "a" * 400)])
    assert not merge.has_room(0)
    assert merge.has_room(1)
    merge.take(0.0)
    assert merge.has_room(0)
