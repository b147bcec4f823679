"""Messages count one thing as one."""

from torchctl.api.counts import agree, counted, every


def test_only_one_is_singular() -> None:
    assert [counted(number, "pod") for number in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]
    assert [every(number, "pod") for number in (0, 1, 2)] == ["all 0 pods", "the pod", "all 2 pods"]
    assert [agree(number, "is", "are") for number in (0, 1, 2)] == ["are", "is", "are"]
