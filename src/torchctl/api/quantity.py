"""Kubernetes quantities, exact: parsed to a fraction and written as the API server writes them.

The API server stores a quantity in its canonical form (1024Gi becomes 1Ti), so a comparison of texts would show
drift although nothing has changed. Rules: k8s.io/apimachinery/pkg/api/resource, CanonicalizeBytes.
"""

import math
import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

__all__ = ["PATTERN", "Format", "NotAQuantity", "Quantity", "canonical", "parse"]

PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$"
"""The accepted form: Kubernetes' grammar without signs, with an exponent of at most two digits."""

_PARTS = re.compile(r"([-+]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?")
_MAX_TEXT = 64
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_SCALES = {
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(_BINARY)},
    **{suffix: Fraction(10) ** power for power, suffix in _DECIMAL.items()},
}


class NotAQuantity(ValueError):
    """A text is no quantity; it says which one, for users."""


class Format(Enum):
    """The family of suffixes that a quantity is written with."""

    BINARY = "BinarySI"
    DECIMAL = "DecimalSI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount and the family of suffixes to write it with. `str()` is the canonical form."""

    value: Fraction
    format: Format = Format.DECIMAL

    def times(self, factor: int | Fraction) -> "Quantity":
        """Returns the amount multiplied, e.g. a size per GPU for all GPUs."""
        return Quantity(self.value * factor, self.format)

    def floor(self, step: Fraction = Fraction(1)) -> "Quantity":
        """Rounds down to a multiple of `step`: bytes cannot be divided, CPUs not below a thousandth."""
        return Quantity(math.floor(self.value / step) * step, self.format)

    def ceil(self) -> "Quantity":
        """Rounds up to a whole number, because devices cannot be divided."""
        return Quantity(Fraction(math.ceil(self.value)), self.format)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded up as Kubernetes does."""
        return math.ceil(self.value * 1000)

    def __str__(self) -> str:
        nano = math.ceil(abs(self.value) * 10**9)
        sign = "-" if self.value < 0 else ""
        if nano == 0:
            return "0"
        # Without a binary suffix the text reads back as decimal, and that is what the server then keeps.
        if self.format is Format.BINARY and nano % (1024 * 10**9) == 0:
            return sign + _binary(nano // 10**9)
        return sign + _decimal(nano, exponent_form=self.format is Format.EXPONENT)


def parse(text: str | int) -> Quantity:
    """Reads a quantity as manifests spell it; YAML gives whole numbers as int.

    Raises:
        NotAQuantity: It is none.
    """
    if isinstance(text, int):
        return Quantity(Fraction(text))
    parts = _PARTS.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if parts is None:
        raise NotAQuantity(f"{text[:_MAX_TEXT]!r} is not a quantity such as 4, 500m or 10Gi")
    sign, digits, suffix = parts.group(1), parts.group(2), parts.group(3) or ""
    amount = Fraction(digits) * (-1 if sign == "-" else 1)
    if len(suffix) > 1 and suffix[0] in "eE" and suffix != "Ei":
        return Quantity(amount * Fraction(10) ** int(suffix[1:]), Format.EXPONENT)
    return Quantity(amount * _SCALES[suffix], Format.BINARY if suffix.endswith("i") else Format.DECIMAL)


def canonical(text: str | int) -> str:
    """Returns the form in which the API server stores a quantity."""
    return str(parse(text))


def _binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY[power]}"


def _decimal(nano: int, *, exponent_form: bool) -> str:
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano, exponent = nano // 1000, exponent + 3
    if exponent_form:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL[exponent]}"
