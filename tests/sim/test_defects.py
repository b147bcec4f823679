"""Defects put into the operator on purpose: the rules of a simulated day notice each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from torchctl.api.phases import Phase
from torchctl.controllers.coordinator import plan
from torchctl.controllers.coordinator.quota import Ledger
from torchctl.controllers.coordinator.room import Room
from torchctl.controllers.job.attempts import lifecycle
from torchctl.controllers.report import Reporter
from torchctl.testing.sim.days.actions import Day, Fate, Submit
from torchctl.testing.sim.days.living import live

LONG = Fate(3000)
FULL = (Submit(1.0, "one", "modest", 4, LONG), Submit(1.0, "two", "modest", 2, LONG))
"""Six of eight nodes, and all of the quota of their queue."""

Patch = pytest.MonkeyPatch
Submits = tuple[Submit, ...]


def lets_half_a_gang_in(patch: Patch) -> Submits:
    whole = Room.way_in
    patch.setattr(Room, "way_in", lambda self, gang: whole(self, replace(gang, pods=(gang.pods + 1) // 2)))
    return (*FULL, Submit(30.0, "half", "owner", 4, LONG))


def ignores_quotas(patch: Patch) -> Submits:
    patch.setattr(Ledger, "shortage", lambda *_: None)
    return (*FULL, Submit(30.0, "more", "modest", 1, LONG))


def counts_an_attempt_twice(patch: Patch) -> Submits:
    following = lifecycle._next

    def skipping(*args: Any) -> Any:
        found = following(*args)
        return msgspec.structs.replace(found, attempt=found.attempt + 1)

    patch.setattr(lifecycle, "_next", skipping)
    return (*FULL, Submit(30.0, "fails", "plain", 1, Fate(3000, failing_attempts=1, after_s=5)))


def books_what_gangs_hold_twice(patch: Patch) -> Submits:
    once = Ledger.__init__

    def twice(self: Ledger, queues: Any, quotas: Any, holdings: Any, *now_s: float) -> None:
        held = tuple(holdings)
        once(self, queues, quotas, (*held, *held), *now_s)

    patch.setattr(Ledger, "__init__", twice)
    return (Submit(1.0, "one", "modest", 4, LONG), Submit(30.0, "two", "modest", 2, LONG))


def lets_in_who_is_let_in(patch: Patch) -> Submits:
    patch.setattr(plan, "waits", lambda job: job.status.phase in (Phase.QUEUED, Phase.STARTING))
    return FULL


def tells_everything_twice(patch: Patch) -> Submits:
    once = Reporter.report

    async def twice(self: Reporter, kind: Any, obj: Any, status: Any, events: Any) -> None:
        await once(self, kind, obj, status, [*events, *events])

    patch.setattr(Reporter, "report", twice)
    return (*FULL, Submit(30.0, "told", "plain", 1, LONG))


@pytest.mark.parametrize(
    "defect",
    [
        lets_half_a_gang_in,
        ignores_quotas,
        counts_an_attempt_twice,
        tells_everything_twice,
        books_what_gangs_hold_twice,
        lets_in_who_is_let_in,
    ],
    ids=lambda defect: defect.__name__,
)
def test_defects_of_the_operator_break_a_rule(defect: Callable[[Patch], Submits], monkeypatch: Patch) -> None:
    day = Day(1, 0.25, defect(monkeypatch), rests=False, coordinated=True)
    assert live(day).broken


def test_the_same_day_breaks_no_rule_without_a_defect() -> None:
    later = Submit(30.0, "half", "owner", 4, LONG), Submit(30.0, "more", "modest", 1, LONG)
    assert live(Day(1, 0.04, (*FULL, *later), rests=False, coordinated=True)).broken == ()
