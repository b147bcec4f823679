"""Lines of logs and cursors over them, against a model of the kubelet's log file: nothing lost, nothing doubled."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.client.loglines import Cursor, LogLine, Splitter

S = 10**9


def written(line: LogLine) -> bytes:
    moment = datetime.fromtimestamp(line.at // S, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{line.at % S:09d}Z {line.text}\n".encode()


def chunks(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cuts `data` at these sizes, the last one repeated."""
    found: list[bytes] = []
    while data:
        size = sizes[min(len(found), len(sizes) - 1)]
        found.append(data[:size])
        data = data[size:]
    return found


LINES = st.lists(st.tuples(st.integers(0, 3 * S), st.text(st.characters(codec="utf-8", exclude_characters="\n"))))
SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=20)


# Lines.


@given(LINES, SIZES)
def test_lines_do_not_depend_on_how_they_arrive(lines: list[tuple[int, str]], sizes: list[int]) -> None:
    data = b"".join(written(LogLine(at, text)) for at, text in lines)
    splitter = Splitter()
    found = [line for chunk in chunks(data, sizes) for line in splitter.feed(chunk)] + splitter.end()
    assert found == [LogLine(at, text) for at, text in lines]


@given(st.lists(st.binary(max_size=200)), SIZES)
def test_long_lines_arrive_in_equal_pieces(lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    splitter, whole = Splitter(16), Splitter(16)
    found = [line for chunk in chunks(data, sizes) for line in splitter.feed(chunk)]
    assert found == whole.feed(data)
    assert all(len(line.text.encode(errors="replace")) <= 3 * 16 for line in found)  # a bad byte becomes three


def test_piece_of_a_long_line_has_its_time() -> None:
    splitter = Splitter(40)
    first, second = splitter.feed(b"1970-01-01T00:00:01.5Z " + b"a" * 40 + b"\n")
    assert (first.at, first.text, first.continues) == (1_500_000_000, "a" * 17, False)
    assert (second.at, second.text, second.continues) == (1_500_000_000, "a" * 23, True)


def test_times_have_zones() -> None:
    (line,) = Splitter().feed(b"1970-01-01T02:00:01.000000001+02:00 text\n")
    assert line == LogLine(S + 1, "text")


def test_an_end_without_line_end_is_a_line() -> None:
    splitter = Splitter()
    assert splitter.feed(b"1970-01-01T00:00:01Z unfinished") == []
    assert splitter.end() == [LogLine(S, "unfinished")]
    assert splitter.end() == []


# Cursors.


def read(file: list[LogLine], cursor: Cursor, cut_after: int) -> list[LogLine]:
    """What the kubelet sends from the cursor's time on, until the connection is cut after so many lines."""
    since = cursor.since
    sent = [line for line in file if since is None or line.at // S >= since.timestamp()]
    if cursor.tail is not None:
        sent = sent[max(0, len(sent) - cursor.tail) :]
    cursor.restart()
    return [line for line in sent[:cut_after] if cursor.accept(line)]


@st.composite
def files(draw: st.DrawFn) -> list[LogLine]:
    """A log whose lines are up to a second out of order, many of one time and text."""
    clock, lines = 0, []
    for _ in range(draw(st.integers(0, 40))):
        clock += draw(st.sampled_from([0, 0, 0, 1, S // 3, S, 5 * S]))
        late = draw(st.sampled_from([0, 0, 1, S // 2, S]))
        lines.append(LogLine(max(0, clock - late), draw(st.sampled_from(["a", "b", ""]))))
    return lines


@given(files(), st.data())
def test_cuts_neither_lose_nor_double_a_line(file: list[LogLine], data: st.DataObject) -> None:
    cursor, received, there = Cursor(), list[LogLine](), 0
    for _ in range(6):
        there = data.draw(st.integers(there, len(file)))
        received += read(file[:there], cursor, data.draw(st.integers(0, len(file))))
    received += read(file, cursor, len(file))
    assert received == file
    assert cursor.received == len(file)


@given(st.lists(st.integers(0, 2 * S), max_size=30).map(sorted), st.data())
def test_rotated_file_is_read_from_where_it_was_left(times: list[int], data: st.DataObject) -> None:
    """Lines that were rotated away before anyone asked for them are lost, and no others."""
    file = [LogLine(at, str(number)) for number, at in enumerate(times)]
    cursor = Cursor()
    received = read(file, cursor, data.draw(st.integers(0, len(file))))
    dropped = data.draw(st.integers(0, len(received)))
    # Whole times only: of lines of one time a rotation may show any.
    while 0 < dropped < len(file) and file[dropped - 1].at == file[dropped].at:
        dropped -= 1
    received += read(file[dropped:], cursor, len(file))
    assert received == file


@given(st.lists(st.integers(0, 2 * S), max_size=30).map(sorted), st.integers(0, 10), st.data())
def test_a_cut_after_a_tail_shows_no_earlier_line(times: list[int], tail: int, data: st.DataObject) -> None:
    file = [LogLine(at, str(number)) for number, at in enumerate(times)]
    there = data.draw(st.integers(0, len(file)))
    cursor = Cursor(tail=tail)
    begun = max(0, there - tail)
    received = read(file[:there], cursor, len(file))
    received += read(file, cursor, len(file)) if received else file[there:]
    assert received == file[begun:]


def test_the_window_is_bounded() -> None:
    cursor = Cursor()
    for second in range(1000):
        assert cursor.accept(LogLine(second * S, "a"))
    assert len(cursor._window) <= 3
    assert cursor.since == datetime.fromtimestamp(997, UTC)
    assert cursor.tail is None
