"""Durations as kubectl takes and shows them: `90s`, `1h30m`, `5d2h`. Pure."""

import re

__all__ = ["parse", "short"]

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+\Z", re.ASCII)
_SHOWN = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def parse(text: str) -> float | None:
    """Returns the seconds of a duration; a number without a unit is seconds. None if it is none."""
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return float(text)
    if not _WHOLE.match(text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


def short(seconds: float) -> str:
    """Writes a duration with its two greatest units, the second one only if the first is small: 5d2h, 12d, 45s."""
    left = max(0, int(seconds))
    for index, (unit, size) in enumerate(_SHOWN):
        if left < size:
            continue
        count, rest = divmod(left, size)
        if count >= 10 or index == len(_SHOWN) - 1:
            return f"{count}{unit}"
        smaller, smaller_size = _SHOWN[index + 1]
        return f"{count}{unit}{rest // smaller_size}{smaller}" if rest >= smaller_size else f"{count}{unit}"
    return "0s"
