"""Quantities mean and look what they do in Kubernetes."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchctl.api.quantity import Format, Quantity, canonical, parse

CANONICAL = {
    "0": "0",
    "0Gi": "0",
    "1024Gi": "1Ti",
    "512Gi": "512Gi",
    "1.5Gi": "1536Mi",
    "1025Ki": "1025Ki",
    "1024": "1024",
    "0.5": "500m",
    "1000m": "1",
    "96": "96",
    "1500k": "1500k",
    "1000k": "1M",
    "1e3": "1e3",
    "1e4": "10e3",
    "1E": "1E",
    "1Ei": "1Ei",
    "0.5Ki": "512",
    "0.1n": "1n",
    "-1": "-1",
}
"""As k8s.io/apimachinery writes them."""


@pytest.mark.parametrize(("text", "expected"), CANONICAL.items())
def test_the_canonical_form_is_the_api_servers(text: str, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "10Gb", "1e999", "0x10", "1_000", "١", "1" * 100, "NaN", "1i"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse(text)


def test_yaml_integers_are_quantities() -> None:
    assert parse(96) == Quantity(Fraction(96))


def test_spellings_of_one_amount_are_equal() -> None:
    assert parse("1024Gi").value == parse("1Ti").value
    assert parse("1").value == parse("1000m").value
    assert parse("1G").value != parse("1Gi").value


def test_a_size_per_gpu_keeps_its_suffix() -> None:
    assert str(parse("10Gi").times(8)) == "80Gi"
    assert str(parse("512Gi").times(Fraction(1, 3)).floor()) == "183251937962"
    assert str(parse("1").times(Fraction(1, 3)).floor(Fraction(1, 1000))) == "333m"


def test_thousandths_round_up() -> None:
    assert parse("0.0001").milli == 1
    assert parse("1500m").milli == 1500


quantities = st.builds(Quantity, st.integers(0, 10**15).map(lambda n: Fraction(n, 1000)), st.sampled_from(list(Format)))


@given(quantities)
@example(Quantity(Fraction(125000), Format.BINARY))
def test_the_canonical_form_is_exact_and_stable(quantity: Quantity) -> None:
    assert parse(str(quantity)).value == quantity.value
    assert canonical(str(quantity)) == str(quantity)
