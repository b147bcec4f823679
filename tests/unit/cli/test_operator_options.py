"""Options of `torchctl run` that are wrong for every job are refused before the process starts."""

import click
import pytest

from torchctl.cli import run
from torchctl.controllers.settings import PolicyName


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


def test_a_cohort_has_a_policy_of_its_own() -> None:
    waits = ["--coordinator-place-within", "60", "--coordinator-provision-within", "90"]
    given = [*waits, "--coordinator-cohort-policy", "research=FIFO", "--coordinator-cohort-policy", "b=Priority"]
    context = run.run.make_context("run", ["--image", "a:1", "--coordinator", *given])
    settings = run._settings(context.params).operator.coordinator
    assert settings is not None
    assert settings.cohort_policies == {"research": PolicyName.FIFO, "b": PolicyName.PRIORITY}
    assert (settings.reserve_after_s, settings.place_within_s, settings.provision_within_s) == (600, 60, 90)


@pytest.mark.parametrize("given", ["FIFO", "=FIFO", "research=", "research=fifo"])
def test_a_cohort_policy_that_makes_no_sense_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter, match="is not COHORT=POLICY, where POLICY is one of SmoothWeighted"):
        run.run.make_context("run", ["--image", "a:1", "--coordinator-cohort-policy", given])


def test_status_may_lag_as_long_as_the_options_say() -> None:
    given = ["--queue-status-period", "2", "--job-status-period", "3", "--kueue-place-period", "60"]
    context = run.run.make_context("run", ["--image", "a:1", *given])
    found = run._settings(context.params).operator
    assert (found.queue_status_period_s, found.job_status_period_s, found.kueue_place_period_s) == (2, 3, 60)


def test_kueue_is_not_asked_without_a_pause() -> None:
    with pytest.raises(click.BadParameter, match="is not in the range"):
        run.run.make_context("run", ["--image", "a:1", "--kueue-place-period", "0"])
