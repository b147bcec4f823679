"""Rules of the jobs that are made from flags and files."""

import json
import random
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.job import JobSpec
from torchctl.api.jobrules import JOB_OBJECT_RULES
from torchctl.api.rules import problems
from torchctl.client.errors import UsageError
from torchctl.client.submission import Request, Submission, build, elastic_of, pairs_of

SEED = {"queue": "h100-training", "gpus": 8, "command": "python train.py --epochs 10", "directory": "my-training"}
FILE: dict[str, Any] = {
    "apiVersion": "torchrun.ai/v1alpha1",
    "kind": "TorchrunJob",
    "metadata": {"name": "vit-training"},
    "spec": {"jobQueue": "h100-training", "command": "python train.py --model vit_large", "numGPUs": 32},
}


def made(**said: Any) -> Submission:
    """The job of the first documentation's line, with other flags over it."""
    return build(Request(**{**SEED, **said}), random.Random(1).choice)


def from_file(spec: dict[str, Any] | None = None, **said: Any) -> Submission:
    manifest = FILE | {"spec": FILE["spec"] | (spec or {})}
    return build(Request(manifest=manifest, file="job.yaml", directory="code", **said), random.Random(1).choice)


def refused(**said: Any) -> str:
    with pytest.raises(UsageError) as refusal:
        made(**said)
    return str(refusal.value)


def test_first_documented_line_becomes_a_job() -> None:
    job = made()
    assert job.body["spec"] == {
        "jobQueue": "h100-training",
        "numGPUs": 8,
        "command": "python train.py --epochs 10",
        "volumes": {"workspace": {"source": "zip"}},
    }
    assert re.fullmatch("my-training-[a-z0-9]{5}", job.name)
    assert (job.namespace, job.uploads) == ("default", True)


def test_argv_stays_an_argv() -> None:
    argv = ("python", "train.py", "--note", "two words", "$HOME", "")
    assert made(command=None, args=argv).body["spec"]["args"] == list(argv)


def test_elastic_job_should_have_all_nodes_it_may() -> None:
    assert made(gpus=None, elastic=(2, 8)).spec.num_nodes == 8
    assert made(gpus=None, elastic=(2, 8), nodes=4).spec.num_nodes == 4


@pytest.mark.parametrize(
    ("text", "url", "ref"),
    [
        ("https://host.example/team/code.git", "https://host.example/team/code.git", None),
        ("https://host.example/team/code@v1.2", "https://host.example/team/code", "v1.2"),
        ("https://host.example/team/code.git@fix/a", "https://host.example/team/code.git", "fix/a"),
        ("https://host.example/@scope/code@main", "https://host.example/@scope/code", "main"),
        ("ssh://git@host.example/team/code.git@main", "ssh://git@host.example/team/code.git", "main"),
        ("git@host.example:team/code.git@main", "ssh://git@host.example/team/code.git", "main"),
    ],
)
def test_git_source_is_read_as_people_write_it(text: str, url: str, ref: str | None) -> None:
    job = made(git=text)
    workspace = job.spec.volumes.workspace
    assert workspace is not None
    assert (workspace.source, workspace.url, workspace.ref, job.uploads) == ("git", url, ref, False)
    assert job.name.startswith("code-")


def test_no_workspace_holds_over_the_queue() -> None:
    job = made(workspace=False)
    assert job.body["spec"]["volumes"]["workspace"] == {"enabled": False}
    assert not job.uploads
    assert job.name.startswith("train-")


def test_directory_is_the_workspace_of_a_file() -> None:
    job = from_file()
    assert job.uploads
    assert job.name == "vit-training"
    assert job.body["spec"] == {**FILE["spec"], "volumes": {"workspace": {"source": "zip"}}}


def test_file_says_where_its_code_comes_from() -> None:
    workspace = {"workspace": {"source": "git", "url": "https://host.example/code.git"}}
    job = from_file({"volumes": workspace})
    assert not job.uploads
    assert job.body["spec"]["volumes"] == workspace
    with pytest.raises(UsageError, match=r"--workspace: job.yaml says itself"):
        from_file({"volumes": workspace}, workspace=True)
    assert from_file({"volumes": {"workspace": {"size": "1Gi"}}}).uploads


def test_flags_win_over_the_file() -> None:
    file = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    job = from_file(file, nodes=2, args=("python", "x.py"), env={"B": "3"}, name="other", namespace="ml", image="i:2")
    spec = job.body["spec"]
    assert spec["numNodes"] == 2
    assert spec["args"] == ["python", "x.py"]
    assert not {"numGPUs", "command"} & set(spec)
    assert spec["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]
    assert (job.name, job.namespace, spec["image"]) == ("other", "ml", "i:2")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"queue": ""}, "--queue is missing. Name a TorchrunQueue"),
        ({"gpus": None}, "--gpus is missing"),
        ({"command": None}, "the command is missing"),
        ({"nodes": 2}, "--gpus and --nodes exclude each other"),
        ({"elastic": (2, 8)}, "--gpus and --elastic exclude each other"),
        ({"args": ["python"]}, "the command and the arguments behind -- exclude each other"),
        ({"git": "https://host.example/code", "workspace": True}, "--git and --workspace exclude each other"),
        ({"git_secret": "keys"}, "--git-secret goes with --git only"),
        ({"queue": "H100"}, "--queue 'H100' is not possible. Queues have names of lower-case letters"),
        ({"gpus": -1}, "--gpus -1 is not possible. Say a number from 0."),
        ({"gpus": None, "nodes": 0}, "--nodes 0 is not possible. Say a number from 1."),
        ({"gpus": None, "elastic": (8, 2)}, "--elastic 8:2 has a minimum above its maximum. Write 2:8."),
        ({"gpus": None, "elastic": (2, 8), "nodes": 9}, "--nodes 9: numNodes must be within elastic.minNodes"),
        ({"command": "  "}, "the command ' ' is not possible. It must not be blank"),
        ({"image": "my image"}, "--image 'my image' is not possible"),
        ({"env": {"1A B": ""}}, "--env '1A B' is not possible"),
        ({"env": {"RANK": "0"}}, "--env 'RANK': name must not be a variable of torchrun"),
        ({"git": "ftp://host.example/code"}, "--git 'ftp://host.example/code' is not possible"),
        ({"git": "https://me:key@host.example/x"}, "--git 'https://***@host.example/x': url must not hold credentials"),
        ({"labels": {"torchrun.ai/x": ""}}, "--label: labels must not have keys of the operator"),
        ({"command": "python \udcff.py"}, "the command has bytes that are no UTF-8 text"),
        ({"name": "Resnet"}, "--name 'Resnet' is not possible. A name has at most 50"),
        ({"name": "resnet-r1"}, "--name 'resnet-r1' is not possible"),
        ({"manifest": {"kind": "Job", "apiVersion": "batch/v1"}}, "the file has apiVersion batch/v1 and kind Job"),
        ({"manifest": FILE | {"metadata": {"namespace": "a"}}, "namespace": "b"}, "--namespace b: the file is for"),
        ({"manifest": FILE | {"spec": {"nodes": 1}}}, "the file: spec.nodes: there is no such field"),
        ({"manifest": FILE | {"spec": {"nprocPerNode": "2"}}}, "the file: spec.nprocPerNode '2': Input should be"),
        ({"manifest": FILE | {"spec": {"env": [{"name": "A", "value": {1}}]}}}, "the file: spec.env.0.value is no"),
        ({"manifest": FILE | {"spec": {"volumes": "code"}}}, "the file: volumes must be an object"),
        ({"manifest": FILE | {"metadata": []}}, "the file: metadata must be an object"),
    ],
)
def test_refusal_names_the_flag_and_the_next_step(said: dict[str, Any], told: str) -> None:
    assert refused(**said).startswith(told)


def test_pairs_and_ranges_are_read() -> None:
    assert pairs_of("--env", ["A=1", "B=a=b", "A="]) == {"A": "", "B": "a=b"}
    assert elastic_of("2:8") == (2, 8)
    for wrong in ("8", "2:", "a:b", "2:8:9", "-1:8"):
        with pytest.raises(UsageError, match=r"--elastic .* is not MIN:MAX"):
            elastic_of(wrong)
    with pytest.raises(UsageError, match="For an empty value write --env KEY="):
        pairs_of("--env", ["A"])


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LINES = WORDS.filter(lambda line: re.search(r"\S", line))
FLAGS = st.fixed_dictionaries(
    {"directory": st.text(max_size=80)},
    optional={
        "env": st.dictionaries(st.from_regex("[A-Z]{1,8}_X", fullmatch=True), WORDS, max_size=3),
        "image": st.just("pytorch/pytorch:2.4.0"),
        "labels": st.dictionaries(st.sampled_from(["team", "example.com/run"]), st.sampled_from(["", "a-1"])),
        "annotations": st.dictionaries(st.sampled_from(["note", "example.com/why"]), WORDS),
        "workspace": st.booleans(),
        "namespace": st.just("ml"),
    },
)
PROGRAMS = st.one_of(
    st.fixed_dictionaries({"command": LINES}),
    st.fixed_dictionaries({"command": st.none(), "args": st.lists(WORDS, min_size=1).filter(lambda argv: argv[0])}),
)
SIZES = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(0, 64)}),
    st.fixed_dictionaries({"gpus": st.none(), "nodes": st.integers(1, 9)}),
    st.fixed_dictionaries({"gpus": st.none(), "elastic": st.tuples(st.integers(1, 4), st.integers(4, 9))}),
)
BASES = st.sampled_from([{}, {"manifest": FILE}])


@given(FLAGS, PROGRAMS, SIZES, BASES, st.randoms(use_true_random=False))
def test_whatever_is_said_survives_in_a_valid_job(
    flags: dict[str, Any], program: dict[str, Any], size: dict[str, Any], base: dict[str, Any], rng: random.Random
) -> None:
    said = {**SEED, **flags, **program, **size, **base}
    job = build(Request(**said), rng.choice)
    spec = JobSpec.model_validate_json(json.dumps(job.body["spec"]), strict=True)
    assert not list(problems(spec))
    assert name_is_valid(job.name)
    assert (spec.command, list(spec.args or ())) == (said["command"], list(said.get("args", ())))
    assert {variable.name: kubelet(variable.value or "") for variable in spec.env} == said.get("env", {})
    assert yaml.safe_load(yaml.safe_dump(job.body)) == job.body


def kubelet(value: str) -> str:
    """The value as the kubelet hands it to a container that has no variables before it."""
    return re.sub(r"\$(\$|\([^)]*\))", lambda found: "$" if found[1] == "$" else found[0], value)


def name_is_valid(name: str) -> bool:
    """Judges a name by the patterns that the API server judges it by."""
    starts, ends = (re.findall(r"matches\('(.*?)'\)", rule.cel) for rule in JOB_OBJECT_RULES[:2])
    return bool(re.search(starts[0], name)) and len(name) <= 50 and not re.search(ends[0], name)
