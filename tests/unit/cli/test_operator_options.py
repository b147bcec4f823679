"""Options of `torchctl run` that are wrong for every job are refused before the process starts."""

import click
import pytest

from torchctl.cli import run


def parsed(scheduler: str) -> str:
    context = run.run.make_context("run", ["--image", "a:1", "--default-scheduler", scheduler])
    return str(context.params["default_scheduler"])


@pytest.mark.parametrize("scheduler", ["", "auto", "volcano", "default-scheduler", "my.scheduler"])
def test_default_scheduler_is_a_name_or_nothing(scheduler: str) -> None:
    assert parsed(scheduler) == scheduler


@pytest.mark.parametrize("scheduler", ["Volcano", "volcano ", "a/b", "-", "x" * 64])
def test_default_scheduler_that_no_queue_could_name_is_refused(scheduler: str) -> None:
    with pytest.raises(click.BadParameter, match="is not the name of a scheduler"):
        parsed(scheduler)
