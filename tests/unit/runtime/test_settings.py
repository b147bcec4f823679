"""Settings are values: defaults are client-go's, and impossible election periods are refused."""

import dataclasses

import pytest

from torchctl.runtime.settings import ClientSettings, ElectionSettings, RuntimeSettings


def test_election_defaults_are_those_of_client_go() -> None:
    election = ElectionSettings()
    assert (election.lease_duration_s, election.renew_deadline_s, election.retry_period_s) == (15, 10, 2)


def test_two_requests_fit_into_the_renew_deadline() -> None:
    assert ElectionSettings().request_timeout_s == 5


@pytest.mark.parametrize(
    ("periods", "named"),
    [
        ({"lease_duration_s": 10.0}, "lease_duration_s"),
        ({"renew_deadline_s": 2.4}, "renew_deadline_s"),
        ({"retry_period_s": 0.0}, "retry_period_s"),
    ],
)
def test_periods_that_let_two_lead_are_refused_by_name(periods: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        ElectionSettings(**periods)  # type: ignore[arg-type]  # mypy cannot match ** against mixed types


@pytest.mark.parametrize("connect_s", [5.0, 6.0])
def test_a_fenced_write_may_not_outlast_the_lease(connect_s: float) -> None:
    """It has passed the fence when it begins to connect, and another replica may lead once the lease is over."""
    slow = ClientSettings(connect_timeout_s=connect_s)
    with pytest.raises(ValueError, match=r"^lease_duration_s .* the margin is 5 s, .* lower connect_timeout_s$"):
        RuntimeSettings(client=slow)
    RuntimeSettings(client=slow, election=ElectionSettings(enabled=False))


@pytest.mark.parametrize("period_s", [0.0, -1.0])
def test_a_sampling_period_that_never_sleeps_is_refused(period_s: float) -> None:
    with pytest.raises(ValueError, match=r"^sampling_period_s"):
        RuntimeSettings(sampling_period_s=period_s)


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RuntimeSettings().workers = 1  # type: ignore[misc]  # the point of the test
