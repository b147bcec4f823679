"""What the garbage collector is told."""

import gc
from collections.abc import Iterator

import pytest

from torchctl.runtime.memory import THRESHOLDS, relax, seldom_collected, settle


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_collections_become_rare() -> None:
    relax()
    assert gc.get_threshold() == THRESHOLDS


def test_what_is_there_is_out_of_later_collections() -> None:
    kept: list[list[int]] = [[]]
    settle()
    assert gc.get_freeze_count() > 1000
    assert all(tracked is not kept for tracked in gc.get_objects())


def test_nothing_is_left_to_collect_as_a_command_ends() -> None:
    with seldom_collected():
        assert gc.get_threshold() == THRESHOLDS
        kept: list[list[int]] = [[]]
    assert all(tracked is not kept for tracked in gc.get_objects())
