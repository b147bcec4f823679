"""Rules of the names of jobs."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.names import MAX_JOB_NAME
from torchctl.client.errors import UsageError
from torchctl.client.jobnames import job_name, name_problem, new_name, script_in


@given(st.text(max_size=120), st.randoms(use_true_random=False))
def test_new_name_is_always_possible(origin: str, rng: random.Random) -> None:
    assert name_problem(new_name(origin, rng.choice)) == ""


@pytest.mark.parametrize(
    ("origin", "stem"),
    [
        ("resnet", "resnet"),
        ("My Training_v2", "my-training-v2"),
        ("2024-run", "run"),
        ("Übung", "ubung"),
        ("日本", "job"),
        ("", "job"),
        ("a" * 80, "a" * (MAX_JOB_NAME - 6)),
        ("x-sync", "x-sync"),
    ],
)
def test_new_name_begins_with_what_it_is_made_from(origin: str, stem: str) -> None:
    assert new_name(origin, lambda letters: letters[-1]).rpartition("-")[0] == stem


@pytest.mark.parametrize("name", ["a" * 51, "1a", "a-", "A", "a.b", "", "a-r1", "a-sync-0", "a-workspace", "a\n"])
def test_names_the_api_server_refuses_are_refused(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python train.py --epochs 10", "train"),
        ("cd src && python -m torch.distributed.run tools/run_vit.py", "run_vit"),
        ("python -m package", ""),
        ("", ""),
    ],
)
def test_script_of_a_command_is_found(line: str, script: str) -> None:
    assert script_in(line).rpartition("/")[2] == script


@pytest.mark.parametrize("text", ["vit", "trj/vit", "torchrunjob/vit", "torchrunjobs.torchrun.ai/vit"])
def test_job_is_named_with_or_without_its_kind(text: str) -> None:
    assert job_name(text) == "vit"


@pytest.mark.parametrize("text", ["", " ", ".", "..", "a/b", "pod/vit", "../vit", "Vit", "vit\n", "-a", "a" * 254, "é"])
def test_what_cannot_be_a_name_is_never_asked_for(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no name of a job. `kubectl torchrun list` shows their names."):
        job_name(text)
