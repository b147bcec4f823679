"""The rules of membership hold whatever is lost, late, repeated, killed or forgotten."""

from typing import Any

import msgspec
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from launcherworld import MOVES, Scene

from torchctl.workspace.membership.core import Membership, Target
from torchctl.workspace.membership.messages import OrderKind, Report, State

HISTORIES = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 2)), max_size=60)
QUIET = ("speak", "work", "second", "companion_dies")
SIZES = st.sampled_from([(1, 1), (2, 2), (3, 3), (2, 1), (3, 1), (3, 2)])


BUDGETS, CALM = st.integers(0, 2), st.booleans()


def made(size: tuple[int, int], room: int, expected: int, budget: int = 0) -> Scene:
    """A job that may have been scaled, if it is elastic: it has room for more, and began with another number."""
    nodes, least = size
    return Scene(nodes, least, budget, room=room if least < nodes else 0, expected=expected if least < nodes else 0)


def play(scene: Scene, history: list[tuple[str, int]]) -> None:
    for move, index in history:
        node = scene.nodes[index % scene.size]
        if not node.ended or move not in ("speak", "ask", "delay", "work", "fail_work", "stop", "crash"):
            getattr(scene, move)(node)


@settings(max_examples=examples(400))
@given(size=SIZES, room=st.integers(0, 2), expected=st.integers(0, 4), budget=BUDGETS, history=HISTORIES, calm=CALM)
def test_one_world_id_means_one_tree_and_one_list(
    size: tuple[int, int], room: int, expected: int, budget: int, history: list[tuple[str, int]], calm: bool
) -> None:
    scene = made(size, room, expected, budget)
    if calm:
        assert scene.calm()
    play(scene, history)
    assert scene.calm()


@settings(max_examples=examples(200))
@given(
    size=SIZES,
    room=st.integers(0, 2),
    expected=st.integers(0, 4),
    history=HISTORIES,
    silence=st.integers(0, 120),
    order=st.permutations([0, 1, 2]),
)
def test_a_companions_death_touches_no_running_world(
    size: tuple[int, int], room: int, expected: int, history: list[tuple[str, int]], silence: int, order: list[int]
) -> None:
    """Whatever led to the world that runs: nobody is stopped by a companion that starts empty, or by none."""
    scene = made(size, room, expected)
    play(scene, history)
    assert scene.calm()
    scene.late = []
    before = [len(node.starts) for node in scene.nodes]
    scene.companion_dies()
    scene.wait(silence)
    scene.companion_starts()
    for _ in range(100):
        for index in order:
            if index < scene.size:
                scene.speak(scene.nodes[index])
        scene.wait(1)
    assert [len(node.starts) for node in scene.nodes] == before
    assert all(node.core.state == "running" for node in scene.nodes)


@settings(max_examples=examples(100))
@given(
    size=SIZES,
    moves=st.lists(st.tuples(st.sampled_from(["speak", "work", "second", "companion_dies"]), st.integers(0, 2))),
)
def test_no_restart_changes_files_only(size: tuple[int, int], moves: list[tuple[str, int]]) -> None:
    scene = Scene(*size)
    assert scene.calm()
    before = [len(node.starts) for node in scene.nodes]
    scene.restart = False
    scene.commit(scene.nodes[0])
    for move, index in moves:
        getattr(scene, move)(scene.nodes[index % scene.size])
        scene.companion_starts()
    for _ in range(20):
        for node in scene.nodes:
            scene.speak(node)
            node.finish_task()
        scene.wait(1)
    assert [node.core.revision for node in scene.nodes] == [scene.claim] * scene.size
    assert [len(node.starts) for node in scene.nodes] == before


@pytest.mark.parametrize("code", [0, 1])
def test_a_program_that_ends_by_itself_ends_the_launcher(code: int) -> None:
    scene = Scene(2, 2)
    assert scene.calm()
    scene.nodes[0].program_ends(code)
    scene.speak(scene.nodes[0])
    assert scene.nodes[0].ended


def test_nobody_is_restarted_while_a_program_comes_to_its_end() -> None:
    """A revision that comes when one worker has finished changes nothing for the others."""
    scene = Scene(2, 2)
    assert scene.calm()
    scene.nodes[0].program_ends(0)
    scene.speak(scene.nodes[0])
    scene.commit(scene.nodes[1])
    for _ in range(5):
        scene.speak(scene.nodes[1])
        scene.nodes[1].finish_task()
        scene.second()
    assert scene.nodes[1].core.state == "running"
    scene.nodes[1].program_ends(0)
    scene.speak(scene.nodes[1])
    assert scene.nodes[1].ended


def test_failure_beside_new_code_ends_in_the_new_code() -> None:
    scene = Scene(2, 2)
    assert scene.calm()
    scene.commit(scene.nodes[0])
    scene.nodes[0].program_ends(1)
    assert scene.calm()
    assert len(scene.worlds) == 2


def test_what_is_remembered_is_bounded() -> None:
    scene = Scene(1, 1)
    assert scene.companion
    kept = scene.companion.settings.kept
    for number in range(kept + 100):
        scene.companion.heard(msgspec.structs.replace(scene.nodes[0].report(), incarnation=str(number)), 1.0)
    assert len(scene.companion.seen) == kept


def test_program_without_a_world_joins_the_others() -> None:
    """It started before it heard of the companion, which had formed an elastic world without it."""
    scene = Scene(2, 1)
    scene.speak(scene.nodes[0])
    scene.minute(scene.nodes[0])
    assert scene.nodes[1].starts == [None]
    assert scene.calm()


def test_world_formed_on_a_late_report_is_given_up() -> None:
    """Worker 0 runs already when worker 1 fails, and the companion knows it only as ready."""
    scene = Scene(2, 2, budget=1)
    assert scene.calm()
    scene.crash(scene.nodes[1])
    scene.speak(scene.nodes[1])
    assert scene.calm()


def test_launchers_of_an_earlier_attempt_do_not_count() -> None:
    scene = Scene(2, 2)
    scene.nodes[1].facts["attempt"] = 1
    for node in scene.nodes:
        scene.speak(node)
    assert scene.companion
    assert [report.index for report in scene.companion.current(scene.now)] == [1]
    assert not any(order.kind is OrderKind.RUN for order in scene.companion.orders(scene.now).values())


def test_without_a_claimed_tree_a_common_one_will_do() -> None:
    scene = Scene(2, 2)
    scene.companion = Membership(scene.now, None)
    for _ in range(3):
        for node in scene.nodes:
            scene.speak(node)
    assert scene.together()
    scene.companion.commit(Target("r1"))
    assert scene.companion.behind(scene.now) == []


def a_report(index: int, seq: int = 1, *, revision: str = "one", **more: Any) -> Report:
    said: dict[str, Any] = {"state": State.RUNNING, "attempt": 0, "nodes": 2, "least": 2, **more}
    ours: dict[str, Any] = {"incarnation": f"{index}-{said['attempt']}", "started": 1, "address": "a", "port": 1}
    return Report(index=index, seq=seq, revision=revision, runs=revision, **ours, **said)


def late(membership: Membership, now: float) -> list[int]:
    return [report.index for report in membership.behind(now)]


def test_worker_that_fell_silent_is_behind_until_replaced() -> None:
    membership = Membership(0, Target("one"))
    for index in range(2):
        membership.heard(a_report(index), 0)
    membership.commit(Target("two"))
    membership.heard(a_report(0, 2, revision="two"), 50)
    assert late(membership, 50) == [1]
    membership.heard(a_report(1, revision="two", attempt=1), 60)
    membership.heard(a_report(0, revision="two", attempt=1), 60)
    assert late(membership, 60) == []


def test_elastic_job_does_not_wait_for_a_lost_worker() -> None:
    membership = Membership(0, Target("two"))
    membership.heard(a_report(1, least=1), 0)
    membership.heard(a_report(0, revision="two", least=1), 50)
    assert late(membership, 50) == []


def test_worker_that_said_goodbye_is_not_behind() -> None:
    membership = Membership(0, Target("two"))
    for index in range(2):
        membership.heard(a_report(index), 0)
    membership.heard(a_report(1, 2, state=State.LEAVING), 1)
    membership.heard(a_report(0, 2, revision="two"), 1)
    assert late(membership, 2) == []


def test_new_companion_has_not_heard_of_all_at_once() -> None:
    membership = Membership(0, Target("two"))
    assert not membership.whole(1)
    membership.heard(a_report(0, revision="two"), 1)
    assert not membership.whole(2)
    assert membership.whole(31)
    membership.heard(a_report(1, revision="two"), 2)
    assert membership.whole(2)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("revisions", [0, 1])
def test_new_companion_completes_a_world_half_told(order: tuple[int, int], revisions: int) -> None:
    """The one before had told one of two to start when it died; the name of the world tells who is missing."""
    scene = Scene(2, 2)
    if revisions:
        assert scene.calm()
        scene.commit(scene.nodes[0])
    before = [len(node.starts) for node in scene.nodes]
    for index in order * 10:
        node = scene.nodes[index]
        if [len(node.starts) for node in scene.nodes] == before:
            scene.speak(node)
            node.finish_task()
            node.finish_stop()
    assert sum(len(node.starts) for node in scene.nodes) == sum(before) + 1
    scene.companion_dies()
    assert scene.calm()
    assert [len(node.starts) for node in scene.nodes] == [count + 1 for count in before]


def test_world_with_older_code_is_not_completed() -> None:
    """New code came while only one of two had started: the other starts with that at once."""
    scene = Scene(2, 2)
    scene.speak(scene.nodes[0])
    scene.speak(scene.nodes[1])
    scene.companion_dies()
    scene.commit(scene.nodes[0])
    assert scene.calm()
    assert [len(node.starts) for node in scene.nodes] == [1, 2]


def test_world_of_a_replaced_worker_is_not_completed() -> None:
    scene = Scene(2, 2)
    scene.speak(scene.nodes[0])
    scene.speak(scene.nodes[1])
    assert [len(node.starts) for node in scene.nodes] == [0, 1]
    scene.companion_dies()
    scene.nodes[0] = scene.node(0)
    assert scene.calm()
    assert [len(node.starts) for node in scene.nodes] == [1, 2]


@pytest.mark.parametrize("port", [1024, 29500, 65530, 65535])
def test_each_world_has_a_port_that_exists(port: int) -> None:
    scene = Scene(2, 2)
    for node in scene.nodes:
        node.facts["port"] = port
    for _ in range(9):
        assert scene.calm()
        scene.commit(scene.nodes[0])
    ports = [world["port"] for world in scene.nodes[0].starts if world]
    assert len(set(ports[:8])) == 8
    assert max(ports) <= 65535


def test_elastic_job_waits_for_those_it_began_with_only() -> None:
    """Two of at most eight: the world comes about as soon as both are there, and again once a lost one is replaced."""
    scene = Scene(2, 1, room=6, expected=2)
    assert scene.companion
    for node in scene.nodes:
        scene.speak(node)
    scene.speak(scene.nodes[0])
    assert scene.together()
    scene.drop(scene.nodes[1])
    scene.wait(scene.companion.settings.dropped_s)
    scene.replace(scene.nodes[1])
    for _ in range(3):
        for node in scene.nodes:
            scene.speak(node)
            node.finish_stop()
    assert scene.together()
    assert len(scene.worlds) == 2
