"""The starts that the documentation shows come from decisions of the coordinator."""

from bench.turns import FEW, turns

from torchctl.controllers.settings import PolicyName


def test_smooth_turns_interleave_the_queues() -> None:
    assert "".join(turns(PolicyName.SMOOTH_WEIGHTED_ROUND_ROBIN, FEW, 14)) == "aabacaa" * 2


def test_weighted_turns_go_queue_by_queue() -> None:
    assert "".join(turns(PolicyName.WEIGHTED_ROUND_ROBIN, FEW, 14)) == "aaaaabc" * 2
