"""What is read from a termination message: of real torchrun (reports/README.md), and of anything else."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.exitcodes import ExitClass, exit_code
from torchctl.controllers.job.failure.rootcause import RootCause, root_cause

REPORTS = Path(__file__).parent / "reports"
MAX_FILE = 4096

NAN = "Failed: the loss is nan at step 7"
PERMANENT, RETRIED = ExitClass.PERMANENT, ExitClass.RETRIED

CAUSES: dict[str, tuple[int | None, int, ExitClass, str]] = {
    # Of the worker where it began: the rank, the code, its class, how the message ends.
    "exit-42": (1, 42, PERMANENT, "rank 1 is training"),
    "exit-42-recorded": (1, 42, PERMANENT, "rank 1 is training"),
    "exit-42-static": (1, 42, PERMANENT, "rank 1 is training"),
    "exit-42-of-4-processes": (1, 42, PERMANENT, "exitcode  : 42 (pid: *)"),
    "exit-42-after-restarts": (1, 42, PERMANENT, "exitcode  : 42 (pid: *)"),
    "exit-137": (1, 137, RETRIED, "rank 1 is training"),
    "exit-255": (1, 255, PERMANENT, "rank 1 is training"),
    "exception": (1, 1, PERMANENT, NAN),
    "exception-recorded": (None, 1, PERMANENT, NAN),
    "exception-recorded-of-4-processes": (None, 1, PERMANENT, NAN),
    "exception-deep-recorded": (None, 1, PERMANENT, "Failed: lost in a deep recursion"),
    "exception-long": (1, 1, PERMANENT, "layer399: [399, 2793]"),
    "exception-long-recorded": (None, 1, PERMANENT, "layer399: [399, 2793]"),
    "exception-with-misleading-words": (1, 1, PERMANENT, "rank      : 9\n  exitcode  : 9"),
    "exception-with-misleading-words-recorded": (None, 1, PERMANENT, "rank      : 9\n  exitcode  : 9"),
    "exception-after-much-talk": (1, 1, PERMANENT, "Failed: after much talk"),
    "exception-on-all-of-4-processes": (1, 1, PERMANENT, "exitcode  : 1 (pid: *)"),
    "exception-on-all-of-4-processes-recorded": (None, 1, PERMANENT, "does not like it either"),
    "sigkill": (1, -9, RETRIED, "Signal 9 (SIGKILL) received by PID *"),
    "sigkill-recorded": (1, -9, RETRIED, "Signal 9 (SIGKILL) received by PID *"),
    "sigkill-from-outside": (1, -9, RETRIED, "Signal 9 (SIGKILL) received by PID *"),
    "sigterm-of-a-rank": (1, -15, RETRIED, "Signal 15 (SIGTERM) received by PID *"),
    "segfault": (1, -11, PERMANENT, "Signal 11 (SIGSEGV) received by PID *"),
    "segfault-recorded": (1, -11, PERMANENT, "Signal 11 (SIGSEGV) received by PID *"),
    "abort": (1, -6, RETRIED, "Signal 6 (SIGABRT) received by PID *"),
    "no-such-script": (1, 2, PERMANENT, "can't open file '/app/trian.py': [Errno 2] No such file or directory"),
    "no-such-module": (1, 1, PERMANENT, "No module named trian"),
    "no-such-option": (None, 2, PERMANENT, "torchrun: error: unrecognized arguments: --nnodez=2"),
    "setup-127": (None, 127, PERMANENT, "prepare-data: not found"),
    "setup-1": (None, 1, PERMANENT, ""),
    "container-137": (None, 137, RETRIED, "Killed"),
    "agent-sigterm": (None, -15, RETRIED, "got signal: 15"),
    "agent-sigterm-recorded": (None, -15, RETRIED, "got signal: 15"),
    "agent-sigint": (None, -2, RETRIED, "got signal: 2"),
    "worker-0-lost-with-the-store": (None, 137, RETRIED, "Killed"),
    "worker-1-lost": (None, 137, RETRIED, "Killed"),
}
FOLLOWERS = {
    "nobody-hosts-the-store": "RendezvousConnectionError: The connection to the C10d store has failed.*",
    "a-peer-never-comes": "RendezvousTimeoutError:",
}
"""Where there is nothing else: somebody never came."""
ALIKE = {"no-such-script", "no-such-module", "no-such-option", "setup-127", "setup-1"}
"""Cases in which each worker goes wrong by itself."""


def reports(case: str) -> dict[int, tuple[int, str]]:
    """Exit code and message of each worker."""
    found = {}
    for path in (REPORTS / case).glob("*.txt"):
        match = re.fullmatch(r"worker-(\d+)\.exit-(\d+)\.txt", path.name)
        assert match
        found[int(match.group(1))] = int(match.group(2)), path.read_text()
    return found


def cause(case: str, worker: int) -> tuple[RootCause, int]:
    """What a worker says, and the code that counts: the one in its message, else its container's."""
    code, text = reports(case)[worker]
    found = root_cause(text)
    return found, code if found.exit_code is None else found.exit_code


def matches(pattern: str, text: str) -> bool:
    return re.search(re.escape(pattern).replace(r"\*", ".*") + r"\Z", text.strip()) is not None


def test_every_report_is_judged_here() -> None:
    assert {path.name for path in REPORTS.iterdir() if path.is_dir()} == {*CAUSES, *FOLLOWERS}


@pytest.mark.parametrize("case", CAUSES)
def test_the_worker_where_it_began_tells_rank_code_and_words(case: str) -> None:
    rank, code, class_, words = CAUSES[case]
    began = 0 if case.startswith("worker-0") else max(reports(case))
    found, counted = cause(case, began)
    assert (found.rank, counted, exit_code(counted).class_) == (rank, code, class_)
    assert matches(words, found.message)
    assert not found.follows


@pytest.mark.parametrize("case", [case for case in CAUSES if len(reports(case)) == 2 and case not in ALIKE])
def test_the_worker_that_only_lost_its_peer_says_so(case: str) -> None:
    found, counted = cause(case, 1 if case.startswith("worker-0") else 0)
    assert found.follows
    assert counted == 1
    assert any(words in found.message for words in ("by peer", "C10d store has failed"))


@pytest.mark.parametrize("case", FOLLOWERS)
def test_a_worker_that_waits_in_vain_is_not_the_cause(case: str) -> None:
    """The worker waits for one that never comes."""
    ((_, text),) = reports(case).values()
    found = root_cause(text)
    assert (found.rank, found.exit_code, found.follows) == (None, None, True)
    assert matches(FOLLOWERS[case], found.message)


@pytest.mark.parametrize("case", [case for case in {**CAUSES, **FOLLOWERS} if "recorded" in case or "agent" in case])
def test_a_report_cut_anywhere_still_says_what_it_can(case: str) -> None:
    """The kubelet keeps the end of a long file, and of that the beginning where a pod has many containers."""
    for _, text in reports(case).values():
        whole = root_cause(text)
        for cut in range(0, len(text), 7):
            without_head, without_tail = root_cause(text[cut:]), root_cause(text[: len(text) - cut])
            assert without_head.exit_code in (whole.exit_code, None)
            assert without_tail.exit_code in (whole.exit_code, None)
        if text.startswith("{"):
            middle = len(text) // 2
            assert root_cause(text[middle:]).exit_code == whole.exit_code
            assert root_cause(text[middle:]).follows is whole.follows
            assert root_cause(text[:-20]).message == whole.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", RootCause()),
        ("Killed", RootCause(message="Killed")),
        (json.dumps({"message": {"message": "ValueError: boom"}}), RootCause(message="ValueError: boom")),
        (
            json.dumps({"message": {"message": "boom", "errorCode": 7, "extraInfo": {}}}),
            RootCause(exit_code=7, message="boom"),
        ),
        (json.dumps({"message": "plain"}), RootCause(message="plain")),
        ("[1]", RootCause(message="[1]")),
        ("null", RootCause(message="null")),
        ('{"message": {"message": "half a', RootCause(message="half a")),
        ('{"message": {"message": "half an esc\\u00', RootCause(message="half an esc")),
        (
            "Root Cause (first observed failure):\n[0]:\n  rank : 3 (local_rank: 1)\n  exitcode : 42 (pid: 41)\n====\n",
            RootCause(rank=3, exit_code=42, message="[0]:\n  rank : 3 (local_rank: 1)\n  exitcode : 42 (pid: 41)"),
        ),
    ],
)
def test_what_a_termination_message_says(text: str, expected: RootCause) -> None:
    assert root_cause(text) == expected


@pytest.mark.parametrize(
    "said",
    [
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2027, remote process exited or "
        "there was a network error, NCCL version 2.21.5",
        "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value "
        "store by key '0', but store->get('0') got error: Connection reset by peer",
        "torch.distributed.DistNetworkError: The client socket has failed to connect to [job-0.job]:29500.",
        "[E] ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
    ],
)
def test_nccl_and_the_store_tell_of_others_too(said: str) -> None:
    assert root_cause(said).follows


@pytest.mark.parametrize(
    "said",
    [
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "requests.exceptions.ConnectionError: (ConnectionResetError(104, 'Connection reset by peer'))",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, unhandled cuda error",
        "OSError: [Errno 32] Broken pipe",
    ],
)
def test_a_programs_own_connection_is_its_own_failure(said: str) -> None:
    assert not root_cause(said).follows


def test_a_long_message_is_cut_to_its_end() -> None:
    found = root_cause("x" * 5000 + "the error")
    assert len(found.message) == 1024
    assert found.message.endswith("the error")


@given(st.text() | st.text(alphabet='{}":\\ud8message[]0123Root Cause()\n'), st.integers(0, 30))
def test_any_text_is_read(text: str, cut: int) -> None:
    report = json.dumps({"message": {"message": text, "extraInfo": {"py_callstack": text, "timestamp": "1"}}})
    for one in (text, report, report[cut:], report[: len(report) - cut]):
        found = root_cause(one)
        assert len(found.message) <= 1024
        found.message.encode()
