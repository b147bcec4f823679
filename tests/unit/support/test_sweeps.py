"""A sample of the points of a sweep, and the names under which writes of two tellings are the same."""

import pytest
from sweeps import sample
from writes import Point, Write

from torchctl.testing.faults import Exchange, Moment

POINTS = [Point(Write("PATCH", f"/{number}"), 1, Moment.BEFORE) for number in range(40)]


@pytest.mark.parametrize("count", [1, 3, 40, 100])
@pytest.mark.parametrize("place", [0, 1, 7])
def test_a_sample_has_so_many_different_points_as_there_are_at_most(count: int, place: int) -> None:
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
def test_what_is_by_chance_in_a_path_is_left_out_and_nothing_else(path: str, name: str) -> None:
    assert str(Write.of(Exchange(1, "PATCH", path, {}), "team-1a2b3c")) == f"PATCH {name}"
