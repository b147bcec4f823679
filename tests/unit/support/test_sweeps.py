"""A sample of the points of a sweep, and the names under which writes of two tellings are the same."""

import pytest
from gates import sample
from writes import Point, Write

from torchctl.testing.faults import Exchange, Moment

POINTS = [Point(Write("PATCH", f"/{number}"), 1, Moment.BEFORE) for number in range(40)]


@pytest.mark.parametrize("count", [1, 3, 40, 100])
@pytest.mark.parametrize("place", [0, 1, 7])
def test_sample_has_distinct_points_and_at_most_all(count: int, place: int) -> None:
    assert len(set(sample(POINTS, count, place))) == min(count, 40)


def test_neighbours_begin_their_samples_elsewhere() -> None:
    assert len({sample(POINTS, 1, place)[0] for place in range(20)}) > 12


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (
            "/apis/a/v2/namespaces/team-1a2b3c/podgroups/pg-a-r1-0c5f3a52-6f0e-4a53-9f2b-1d1f4b6f7a10",
            "podgroups/pg-a-r1-*",
        ),
        ("/apis/apps/v1/namespaces/team-1a2b3c/controllerrevisions/a-0123abc", "controllerrevisions/a-*"),
        ("/api/v1/namespaces/team-1a2b3c/pods/a-sync-0", "pods/a-sync-0"),
        ("/api/v1/namespaces/team-1a2b3c/pods/a-r1-0-x7k2p", "pods/a-r1-0-*"),
        ("/api/v1/namespaces/team-1a2b3c/events/a.17", "events/*"),
    ],
)
def test_only_random_parts_of_a_path_are_left_out(path: str, name: str) -> None:
    assert str(Write.of(Exchange(1, "PATCH", path, {}), "team-1a2b3c")) == f"PATCH {name}"
