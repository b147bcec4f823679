"""Which lines torchrun gets, and that the user's text reaches the shell as it was written."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.job import Launcher
from torchctl.controllers.job.children.command import (
    argv,
    in_place,
    scan,
    with_torchrun,
    words_with_torchrun,
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py --epochs 10", "torchrun train.py --epochs 10"),
        ("python3 train.py", "torchrun train.py"),
        ("  python   train.py", "  torchrun   train.py"),
        ("\npython train.py\n", "\ntorchrun train.py\n"),
        ("python -m pkg.train -x 1", "torchrun -m pkg.train -x 1"),
        ("python -X dev script.py", "torchrun --no-python python -X dev script.py"),
        ("python3 -u script.py", "torchrun --no-python python3 -u script.py"),
        ("python -c 'import torch; print(1)'", "torchrun --no-python python -c 'import torch; print(1)'"),
        ('python "my script.py"', 'torchrun "my script.py"'),
        ("python", "torchrun --no-python python"),
        ("python < script.py", "torchrun --no-python python < script.py"),
        ("SEED=1 OUT='a b' python train.py", "SEED=1 OUT='a b' torchrun train.py"),
        ("python train.py > log 2>&1", "torchrun train.py > log 2>&1"),
        ('python train.py --name "a;b|c&d"', 'torchrun train.py --name "a;b|c&d"'),
        ("python train.py --name a\\;b", "torchrun train.py --name a\\;b"),
        ("python train.py \\\n  --epochs 2", "torchrun train.py \\\n  --epochs 2"),
        ("python train.py --run $(date +%s)", "torchrun train.py --run $(date +%s)"),
        ('python train.py --run "$(hostname; date)"', 'torchrun train.py --run "$(hostname; date)"'),
        ("python train.py --run `date; id`", "torchrun train.py --run `date; id`"),
        ("python train.py --dir ${HOME:-/tmp}/x", "torchrun train.py --dir ${HOME:-/tmp}/x"),
        ("python train.py --n $((1 + 2))", "torchrun train.py --n $((1 + 2))"),
        ("python train.py # only a; comment", "torchrun train.py # only a; comment"),
        ("python train.py --project torchrun-demo", "torchrun train.py --project torchrun-demo"),
        ('python train.py --note "it\'s fine"', 'torchrun train.py --note "it\'s fine"'),
    ],
)
def test_one_simple_command_of_python_goes_to_torchrun(line: str, expected: str) -> None:
    assert with_torchrun(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "torchrun train.py",
        "torchrun --nproc-per-node 2 train.py",
        "python -m torch.distributed.run train.py",
        "python -m torch.distributed.launch train.py",
        "python $(which torchrun) train.py",
        "/usr/local/bin/torchrun train.py",
        "cd src && python train.py",
        "python prepare.py; python train.py",
        "python prepare.py\npython train.py",
        "python train.py | tee log",
        "python train.py &",
        "python train.py || true",
        "(python train.py)",
        "if true; then python train.py; fi",
        "python train.py <(ls)",
        "accelerate launch train.py",
        "./train.sh",
        "pythonic train.py",
        "python3.11 train.py",
        "python 'unclosed",
        'python "unclosed',
        "python $(unclosed",
        "python train.py # comment\npython other.py",
        "SEED=1",
    ],
)
def test_any_other_line_runs_as_it_was_written(line: str) -> None:
    assert with_torchrun(line) == line


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["python", "train.py", "--x", "a b"], ["torchrun", "train.py", "--x", "a b"]),
        (["python3", "-m", "pkg"], ["torchrun", "-m", "pkg"]),
        (["python3", "-u", "x.py"], ["torchrun", "--no-python", "python3", "-u", "x.py"]),
        (["python"], ["torchrun", "--no-python", "python"]),
        (["torchrun", "x.py"], ["torchrun", "x.py"]),
        (["python", "-m", "torch.distributed.run", "x.py"], ["python", "-m", "torch.distributed.run", "x.py"]),
        (["python", "x.py", "; rm -rf /"], ["torchrun", "x.py", "; rm -rf /"]),
        (["bash", "run.sh"], ["bash", "run.sh"]),
    ],
)
def test_an_argv_follows_the_same_rule_without_a_shell(args: list[str], expected: list[str]) -> None:
    assert words_with_torchrun(args) == expected
    assert argv(line=None, args=args) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun train.py", "exec torchrun train.py"),
        ("SEED=1 OUT='a b' torchrun train.py > log 2>&1", "SEED=1 OUT='a b' exec torchrun train.py > log 2>&1"),
        ("python3.11 -m torch.distributed.run x.py", "exec python3.11 -m torch.distributed.run x.py"),
        ("./train.sh", "exec ./train.sh"),
        ("/opt/conda/bin/torchrun x.py", "exec /opt/conda/bin/torchrun x.py"),
        *(
            (line, line)
            for line in ("cd src", "accelerate launch x.py", "exit 3", "python a.py; python b.py", "A=1", "")
        ),
        *((line, line) for line in ("python x.py | tee log", "python x.py &", "$PROGRAM x.py", '"./my train.sh"')),
    ],
)
def test_a_program_takes_the_place_of_the_shell_which_is_deaf_to_sigterm(line: str, expected: str) -> None:
    assert in_place(line) == expected


@pytest.mark.parametrize("setup", [None, "true"])
@pytest.mark.parametrize(
    "line", ["python x.py", "SEED=1 python x.py", "torchrun x.py > log; cat log", "SEED=1 ./torchrun x.py"]
)
def test_torchrun_is_the_process_that_the_container_is_told_to_stop(
    line: str, setup: str | None, tmp_path: Path
) -> None:
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$$ $PPID $SEED"\n')
    (tmp_path / "torchrun").chmod(0o755)
    words = [kubelet(word) for word in argv(line=line, args=(), setup=setup)]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SEED": "0"}
    with subprocess.Popen(words, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pid, parent, seed = process.stdout.read().split()
    first = pid if scan(line) else parent
    assert int(first) == process.pid
    assert seed == ("1" if "SEED=1" in line else "0")


def test_launcher_none_changes_nothing_but_the_process() -> None:
    assert argv(line="python x.py", args=(), launcher=Launcher.NONE) == ["sh", "-c", "exec python x.py"]
    assert argv(line=None, args=("python", "x.py"), launcher=Launcher.NONE) == ["python", "x.py"]


def kubelet(text: str) -> str:
    """What the kubelet makes of an argument when no variable has the name: only $$ changes."""
    return re.sub(r"\$\$", "$", text)


@given(st.text(alphabet="$()aA{} ", max_size=40))
def test_the_kubelet_hands_the_line_on_as_it_was_written(line: str) -> None:
    arrived = argv(line=line, args=(), launcher=Launcher.NONE)[2]
    assert kubelet(arrived) == in_place(line)
    unescaped = re.sub(r"\$\$", "", arrived)
    assert "$(" not in unescaped


def run(words: list[str], directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs what a container would, with a torchrun that only tells how it was called."""
    program = directory / "torchrun"
    program.write_text('#!/bin/sh\necho "torchrun:$#:$*:$FROM_SETUP:$PET_RDZV_CONF"\n')
    program.chmod(0o755)
    return subprocess.run(
        [kubelet(word) for word in words],
        env={"PATH": f"{directory}:/usr/bin:/bin", **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )


def test_setup_runs_first_in_the_same_shell(tmp_path: Path) -> None:
    words = argv(line="python x.py $$ok", args=(), setup="FROM_SETUP=1; export FROM_SETUP\nmkdir d\ncd d")
    done = run(words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torchrun:2:x.py ")
    assert ":1:" in done.stdout


@pytest.mark.parametrize("setup", ["exit 7", "(exit 7)", "(exit 7)\ntrue", "sh -c 'exit 7'"])
def test_a_setup_that_fails_is_the_failure(setup: str, tmp_path: Path) -> None:
    done = run(argv(line="python x.py", args=(), setup=setup), tmp_path)
    assert (done.returncode, done.stdout) == (7, "")


def test_a_command_after_setup_does_not_inherit_its_strictness(tmp_path: Path) -> None:
    done = run(argv(line="false; echo on", args=(), setup="true"), tmp_path)
    assert (done.returncode, done.stdout) == (0, "on\n")


def test_an_argv_after_setup_keeps_its_words(tmp_path: Path) -> None:
    done = run(argv(line=None, args=["python", "x.py", "a b", "$HOME", "*"], setup="true"), tmp_path)
    assert done.stdout == "torchrun:4:x.py a b $HOME *::\n"


@pytest.mark.parametrize(("index", "host"), [("0", "1"), ("1", "0"), ("10", "0")])
def test_with_the_hosts_network_the_index_says_who_hosts_the_store(index: str, host: str, tmp_path: Path) -> None:
    words = argv(line="python x.py", args=(), host_by_index=True)
    done = run(words, tmp_path, JOB_COMPLETION_INDEX=index, PET_RDZV_CONF="join_timeout=9")
    assert done.stdout == f"torchrun:1:x.py::join_timeout=9,is_host={host}\n"


@given(line=st.text(max_size=60), setup=st.text(max_size=30).filter(bool))
def test_no_script_ever_holds_the_users_text(line: str, setup: str) -> None:
    words = argv(line=line, args=(), setup=setup)
    scripts = {argv(line="a", args=(), setup="b")[2]}
    assert words[:4] == ["sh", "-c", scripts.pop(), "sh"]
    assert len(words) == 6


PLAIN = st.lists(st.text(alphabet="abc=-./_$*?'\" \\;&|()<>`#\n", min_size=1, max_size=8), min_size=1, max_size=5)


@given(PLAIN)
def test_quoted_words_are_always_one_simple_command(words: list[str]) -> None:
    line = shlex.join(["python", "x.py", *words])
    assert scan(line) is not None or "torchrun" in line
    assert with_torchrun(line) == "torchrun" + line.removeprefix("python")


@pytest.mark.parametrize("opening", ["$(", "${", "$((", '"$('])
def test_a_line_that_nests_deeper_than_anybody_writes_runs_as_it_was_written(opening: str) -> None:
    line = f"python train.py {opening * 8_000}"
    assert scan(line) is None
    assert with_torchrun(line) == line


@given(st.text(alphabet="ab '\"\\;&|()<>`$#\n{}=", max_size=30))
def test_scanning_ends_and_its_spans_are_in_order(text: str) -> None:
    line = scan(text)
    if line is not None:
        ends = [0, *(at for span in line.words for at in span)]
        assert ends == sorted(ends)
        assert ends[-1] <= len(text)
