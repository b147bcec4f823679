"""A play is a sequence of reports that a real pod could go through; a script gives each pod one."""

from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.labels import ROLE, ROLE_SYNC
from torchctl.runtime.kinds import ObjectMeta
from torchctl.testing.nodekinds import Container, Pod, PodSpec
from torchctl.testing.script import (
    SYNC_MESSAGE,
    Done,
    LoseNode,
    Part,
    Pause,
    Play,
    PodReport,
    Running,
    Script,
    Show,
    Waiting,
    default_play,
    finish,
    labelled,
    named,
    perform,
    role,
)


def a_pod(*, init: int = 0, main: int = 1, name: str = "p", **labels: str) -> Pod:
    return Pod(
        ObjectMeta(name=name, namespace="n", labels=labels),
        PodSpec(
            containers=tuple(Container(f"main-{index}") for index in range(main)),
            init_containers=tuple(Container(f"init-{index}") for index in range(init)),
        ),
    )


def sync_pod(*names: str, init: tuple[str, ...] = ()) -> Pod:
    return Pod(
        ObjectMeta(name="j-sync-0", labels={ROLE: ROLE_SYNC}),
        PodSpec(tuple(map(Container, names)), tuple(map(Container, init))),
    )


def reports(pod: Pod, play: Play) -> list[PodReport]:
    return [step.report for step in perform(pod, play) if isinstance(step, Show)]


def beside(*sidecars: str, init: tuple[str, ...] = (), main: tuple[str, ...] = ("trainer",)) -> Pod:
    """A pod with native sidecars, which start before its other init containers."""
    started = tuple(Container(name, restart_policy="Always") for name in sidecars)
    return Pod(ObjectMeta(name="p"), PodSpec(tuple(map(Container, main)), (*started, *map(Container, init))))


parts = st.builds(
    Part,
    run_s=st.none() | st.floats(0, 10),
    exit_code=st.integers(0, 255),
    blocked=st.sampled_from(["", "CrashLoopBackOff"]),
)
pods = st.builds(a_pod, init=st.integers(0, 3), main=st.integers(1, 3))
plays = st.builds(
    Play,
    start_delay_s=st.floats(0, 10),
    run_s=st.none() | st.floats(0, 10),
    exit_code=st.integers(0, 255),
    parts=st.dictionaries(st.sampled_from(["init-0", "init-1", "main-0", "main-1"]), parts),
    blocked=st.sampled_from(["", "ImagePullBackOff"]),
    evicted=st.sampled_from(["", "no memory"]),
    node_lost=st.booleans(),
    stop_exit_code=st.integers(0, 255),
)
ORDER = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}


@given(pods, plays)
def test_phases_only_go_forward_and_nothing_follows_the_end(pod: Pod, play: Play) -> None:
    phases = [report.phase for report in reports(pod, play)]
    assert phases == sorted(phases, key=ORDER.__getitem__)
    assert all(not report.is_terminal for report in reports(pod, play)[:-1])


@given(pods, plays)
def test_every_container_has_a_state_in_every_report(pod: Pod, play: Play) -> None:
    for report in reports(pod, play):
        assert len(report.init) == len(pod.spec.init_containers)
        assert len(report.main) == len(pod.spec.containers)


@given(pods, plays)
def test_init_containers_run_one_at_a_time_and_first(pod: Pod, play: Play) -> None:
    for report in reports(pod, play):
        kinds = [type(state) for state in report.init]
        assert [kind for kind in kinds if kind is not Done] == kinds[kinds.count(Done) :]
        assert sum(isinstance(state, Running) for state in report.init) <= 1
        if any(isinstance(state, Running) for state in report.main):
            assert all(isinstance(state, Done) and state.exit_code == 0 for state in report.init)


@given(pods, plays)
def test_a_pod_succeeds_exactly_if_all_its_containers_did(pod: Pod, play: Play) -> None:
    last = reports(pod, play)[-1]
    if last.is_terminal:
        well = all(isinstance(state, Done) and state.exit_code == 0 for state in (*last.init, *last.main))
        assert (last.phase == "Succeeded") is well


@given(pods, plays)
def test_wherever_a_pod_is_stopped_it_ends(pod: Pod, play: Play) -> None:
    for now in (None, *reports(pod, play)):
        report = finish(pod, play, now)
        if now is not None and now.is_terminal:
            assert report is None
        else:
            assert report is not None
            assert report.is_terminal
            assert not any(isinstance(state, Running) for state in (*report.init, *report.main))


def test_a_stopped_container_ends_with_the_play_s_code() -> None:
    pod, play = a_pod(), Play(run_s=None, stop_exit_code=143)
    assert finish(pod, play, reports(pod, play)[-1]) == PodReport("Failed", (), (Done(143, "Error"),))


def test_pod_that_exits_0_when_stopped_has_succeeded() -> None:
    pod, play = a_pod(), Play(run_s=None, stop_exit_code=0)
    assert finish(pod, play, reports(pod, play)[-1]) == PodReport("Succeeded", (), (Done(),))


def test_a_blocked_pod_stays_pending_with_its_reason() -> None:
    play = Play(blocked="ImagePullBackOff", blocked_message="no such image")
    assert reports(a_pod(), play)[-1] == PodReport("Pending", (), (Waiting("ImagePullBackOff", "no such image"),))


def test_the_trainer_s_end_leaves_a_plain_sidecar_running() -> None:
    pod = Pod(ObjectMeta(name="p"), PodSpec((Container("trainer"), Container("proxy"))))
    last = reports(pod, Play(parts={"proxy": Part(run_s=None)}))[-1]
    assert last == PodReport("Running", (), (Done(), Running()))
    assert finish(pod, Play(), last) == PodReport("Failed", (), (Done(), Done(143, "Error")))


def test_containers_of_a_pod_end_each_in_its_time() -> None:
    pod = Pod(ObjectMeta(name="p"), PodSpec((Container("trainer"), Container("log"))))
    steps = list(perform(pod, Play(run_s=5, parts={"log": Part(run_s=2, exit_code=3)})))[1:]
    both, one = (Running(), Running()), (Running(), Done(3, "Error"))
    assert steps == [
        Show(PodReport("Running", (), both)),
        Pause(2),
        Show(PodReport("Running", (), one)),
        Pause(3),
        Show(PodReport("Failed", (), (Done(), Done(3, "Error")))),
    ]


def test_a_native_sidecar_runs_before_and_while_the_trainer_does() -> None:
    seen = reports(beside("proxy", init=("setup",)), Play())
    assert [(report.phase, report.init) for report in seen] == [
        ("Pending", (Waiting(), Waiting())),
        ("Pending", (Running(), Waiting())),
        ("Pending", (Running(), Running())),
        ("Running", (Running(), Done())),
        ("Succeeded", (Done(), Done())),
    ]


def test_a_native_sidecar_that_crashes_holds_the_pod_up() -> None:
    last = reports(beside("proxy"), Play(parts={"proxy": Part(blocked="CrashLoopBackOff")}))[-1]
    assert last == PodReport("Pending", (Waiting("CrashLoopBackOff"),), (Waiting(),))


def test_an_init_container_that_hangs_holds_the_pod_up() -> None:
    last = reports(a_pod(init=1), Play(parts={"init-0": Part(run_s=None)}))[-1]
    assert last == PodReport("Pending", (Running(),), (Waiting(),))


def test_a_blocked_main_container_leaves_its_pod_pending() -> None:
    play = Play(run_s=None, parts={"main-1": Part(blocked="CreateContainerError")})
    assert reports(a_pod(main=2), play)[-1] == PodReport("Pending", (), (Running(), Waiting("CreateContainerError")))


def test_an_evicted_pod_says_so() -> None:
    last = reports(a_pod(), Play(evicted="low on memory"))[-1]
    assert (last.phase, last.reason, last.message, last.disrupted) == (
        "Failed",
        "Evicted",
        "low on memory",
        "TerminationByKubelet",
    )


def test_a_lost_node_is_the_end_of_what_is_reported() -> None:
    *_, pause, last = perform(a_pod(), Play(run_s=3, node_lost=True))
    assert (pause, last) == (Pause(3), LoseNode())


def test_end_of_the_log_becomes_the_termination_message_on_request() -> None:
    container = Container("c", termination_message_policy="FallbackToLogsOnError")
    pod = Pod(ObjectMeta(name="p"), PodSpec((container,)))
    (state,) = reports(pod, Play(exit_code=1, log="x" * 3000 + "Root Cause"))[-1].main
    assert isinstance(state, Done)
    assert state.message.endswith("Root Cause")
    assert len(state.message) == 2048


def test_by_default_a_sync_pod_reports_what_it_fetched() -> None:
    pod = sync_pod("fetch")
    assert reports(pod, default_play(pod))[-1] == PodReport("Succeeded", (), (Done(message=SYNC_MESSAGE),))


def test_serving_sync_pod_reports_in_its_init_container_and_stays() -> None:
    pod = sync_pod("serve", init=("fetch",))
    assert reports(pod, default_play(pod))[-1] == PodReport("Running", (Done(message=SYNC_MESSAGE),), (Running(),))


def test_the_latest_rule_that_matches_decides() -> None:
    one, two, three = Play(exit_code=1), Play(exit_code=2), Play(exit_code=3)
    script = Script().when(named("^p"), one).when(labelled(app="x"), two).when(role("sync"), lambda pod: three)
    assert script(a_pod()) is one
    assert script(a_pod(app="x")) is two
    assert script(sync_pod("fetch")) is three
    assert script(a_pod(name="q")) == Play()
