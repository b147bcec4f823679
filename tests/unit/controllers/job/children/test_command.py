"""Which lines torchrun gets, and that the user's text reaches the shell as it was written."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.api.job import Launcher
from torchctl.controllers.job.children.command import (
    argv,
    in_place,
    runs_as_written,
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
        ("python train.py --launcher torchrun", "torchrun train.py --launcher torchrun"),
        ("python -m pkg --launcher torchrun", "torchrun -m pkg --launcher torchrun"),
        ("export L=torchrun; python train.py", "export L=torchrun; torchrun train.py"),
        ("python train.py --project torchrun-demo", "torchrun train.py --project torchrun-demo"),
        ('python train.py --note "it\'s fine"', 'torchrun train.py --note "it\'s fine"'),
        ("python $SCRIPT --x", "torchrun --no-python python $SCRIPT --x"),
        ("python '-u' train.py", "torchrun --no-python python '-u' train.py"),
        ("exec python train.py", "exec torchrun train.py"),
        ("SEED=1 exec python3 train.py", "SEED=1 exec torchrun train.py"),
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
        "python -u -m torch.distributed.run train.py",
        "python3.11 -X dev /opt/bin/torchrun train.py",
        "python $(which torchrun) train.py",
        "/usr/local/bin/torchrun train.py",
        "cd src && python train.py && echo done",
        "cd src & python train.py",
        "cd src || python train.py",
        "pip install -e . && python train.py",
        "./train.sh; python report.py",
        ". ./functions.sh; python train.py",
        "cd src &&",
        "&& python train.py",
        "cd src;; python train.py",
        "exec > log\npython train.py",
        "exec -a trainer python train.py",
        "cd <<cd\nexport A\ncd\npython train.py",
        "python - <<EOF\nprint()\nEOF",
        "python\\\n3 train.py",
        "python train.py \\",
        "$VENV/bin/python train.py",
        "time python train.py",
        "! python train.py",
        "python prepare.py; python train.py",
        "python prepare.py\npython train.py",
        "python train.py | tee log",
        "python train.py &",
        "python train.py || true",
        "# a comment only",
        "(python train.py)",
        "if true; then python train.py; fi",
        "python train.py <(ls)",
        "accelerate launch train.py",
        "./train.sh",
        "pythonic train.py",
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
    ("line", "expected"),
    [
        ("python3.11 train.py", "python3.11 -m torch.distributed.run train.py"),
        ("python3.13t -m pkg", "python3.13t -m torch.distributed.run -m pkg"),
        ("/opt/conda/bin/python train.py", "/opt/conda/bin/python -m torch.distributed.run train.py"),
        (
            "A=1 .venv/bin/python3 -u train.py > log",
            "A=1 .venv/bin/python3 -m torch.distributed.run --no-python .venv/bin/python3 -u train.py > log",
        ),
    ],
)
def test_an_interpreter_named_closely_runs_torchrun_itself(line: str, expected: str) -> None:
    assert with_torchrun(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cd src && python train.py", "cd src && torchrun train.py"),
        ("cd src; export A=1 B\n\nC=$(date) ; python3.11 x.py", None),
        ("# what this does\n#!/bin/sh\npython train.py # why\n # and more\n", None),
        ("set -eux\nulimit -n 4096 && # much\n  exec python train.py;", None),
    ],
)
def test_what_only_prepares_the_shell_may_come_first(line: str, expected: str | None) -> None:
    launched = with_torchrun(line)
    assert launched == (expected or launched)
    assert launched != line
    assert not runs_as_written(line=line, args=(), launcher=Launcher.TORCHRUN)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py | tee log", True),
        ("accelerate launch train.py", True),
        ("./train.sh", True),
        ("python train.py", False),
        ("torchrun train.py | tee log", False),
        ("./train.sh && python -m torch.distributed.run train.py", False),
    ],
)
def test_a_line_that_torchrun_does_not_run_is_recognised(line: str, expected: bool) -> None:
    assert runs_as_written(line=line, args=(), launcher=Launcher.TORCHRUN) is expected
    assert not runs_as_written(line=line, args=(), launcher=Launcher.NONE)
    assert runs_as_written(line=None, args=["sh", "-c", line], launcher=Launcher.TORCHRUN) is not ("torch" in line)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["python", "train.py", "--x", "a b"], ["torchrun", "train.py", "--x", "a b"]),
        (["python3", "-m", "pkg"], ["torchrun", "-m", "pkg"]),
        (["python3", "-u", "x.py"], ["torchrun", "--no-python", "python3", "-u", "x.py"]),
        (["python"], ["torchrun", "--no-python", "python"]),
        (["torchrun", "x.py"], ["torchrun", "x.py"]),
        (["python", "-m", "torch.distributed.run", "x.py"], ["python", "-m", "torch.distributed.run", "x.py"]),
        (
            ["python", "-u", "-m", "torch.distributed.run", "x.py"],
            ["python", "-u", "-m", "torch.distributed.run", "x.py"],
        ),
        (["python", "x.py", "torchrun"], ["torchrun", "x.py", "torchrun"]),
        (["python", "x.py", "; rm -rf /"], ["torchrun", "x.py", "; rm -rf /"]),
        (["bash", "run.sh"], ["bash", "run.sh"]),
        (["/usr/bin/python3", "x.py"], ["/usr/bin/python3", "-m", "torch.distributed.run", "x.py"]),
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
        ("cd src && torchrun x.py", "cd src && exec torchrun x.py"),
        ("./train.sh exec", "exec ./train.sh exec"),
        ("exec torchrun x.py", "exec torchrun x.py"),
        *(
            (line, line)
            for line in ("cd src", "accelerate launch x.py", "exit 3", "python a.py; python b.py", "A=1", "")
        ),
        *((line, line) for line in ("python x.py | tee log", "python x.py &", "$PROGRAM x.py", '"./my train.sh"')),
    ],
)
def test_a_program_replaces_its_shell(line: str, expected: str) -> None:
    """A shell in its place would be deaf to SIGTERM."""
    assert in_place(line) == expected


@pytest.mark.parametrize("setup", [None, "true"])
@pytest.mark.parametrize(
    "line", ["python x.py", "SEED=1 python x.py", "torchrun x.py > log; cat log", "SEED=1 ./torchrun x.py"]
)
def test_torchrun_is_the_process_that_gets_the_stop_signal(line: str, setup: str | None, tmp_path: Path) -> None:
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
def test_the_index_names_the_stores_host_on_the_hosts_network(index: str, host: str, tmp_path: Path) -> None:
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
def test_a_deeply_nested_line_runs_as_written(opening: str) -> None:
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


WORDS = st.sampled_from(["x.py", "'a b'", '"$HOME"', "$(echo c)", "a\\;b", "--x=1", "#no", "*", "-m", "-u", "~", ""])
PREPARATIONS = st.sampled_from(
    ["cd sub", "export A='1 2'", "B=2", "set -e", "umask 077", "# no; word &", "", "A=$B; cd ../sub", "unset HOME"]
)
JOINS = st.sampled_from([" && ", "; ", "\n", " ;\n", " && \n"])
TELLS = """#!/bin/sh
[ "$2" != torch.distributed.run ] || shift 2
[ "$1" != --no-python ] || shift 2
for word do printf "<%s>" "$word"; done
echo "$A,$B,$HOME,$(pwd),$(umask)"
"""
"""A program that tells what it was started with, as torchrun does it for the interpreter."""


@given(
    before=st.lists(st.tuples(PREPARATIONS, JOINS), max_size=3),
    python=st.sampled_from(["python", "exec python3", "A=3 python", "bin/python3.11"]),
    words=st.lists(WORDS, max_size=4),
)
@settings(max_examples=examples(60))
def test_torchrun_gets_what_python_would_have_got(
    before: list[tuple[str, str]], python: str, words: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both lines are run by a shell; whatever the line is, words, variables and directory are the same."""
    line = "".join(map("".join, before)) + " ".join([python, *words])
    told = [_told(text, tmp_path_factory.mktemp("run")) for text in (line, in_place(with_torchrun(line)))]
    assert told[0] == told[1]


def _told(line: str, directory: Path) -> tuple[str, int]:
    """What the program that a line ends in was started with, and the status of the line."""
    places = [directory / "bin", directory / "sub" / "bin"]
    for place in places:
        place.mkdir(parents=True)
        for name in ("python", "python3", "python3.11", "torchrun"):
            (place / name).write_text(TELLS)
            (place / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", line],
        env={"PATH": f"{places[0]}:/usr/bin:/bin", "HOME": "/"},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return done.stdout.replace(str(directory), ""), done.returncode
