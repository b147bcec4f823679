"""Selects the objects of a kind that are watched."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torchctl.runtime.kinds import Key

__all__ = ["Selector"]


@dataclass(frozen=True, slots=True)
class Selector:
    """Limits a list or a watch on the server's side. Empty fields do not limit."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def __str__(self) -> str:
        parts = (("namespace", self.namespace), ("labels", self.labels), ("fields", self.fields))
        return " ".join(f"{name}={value}" for name, value in parts if value)

    def may_show(self, key: Key, labels: Mapping[str, str]) -> bool:
        """Tells if an object of this name and these labels is selected.

        Of a field selector only the name is known here. If it names another field, the answer is False.
        """
        return (
            self.namespace in ("", key.namespace)
            and all(_has(labels, requirement) for requirement in _split(self.labels))
            and all(_names(key, requirement) for requirement in _split(self.fields))
        )


_REQUIREMENT = re.compile(r"(!?)\s*([^\s!=()]+)\s*(?:(!=|==?)\s*(\S*)|(in|notin)\s*\(([^)]*)\))?")
"""One requirement of a label selector: `a`, `!a`, `a=b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`."""


def _split(selector: str) -> list[str]:
    """Returns the requirements of a selector; a comma inside of parentheses separates values."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _has(labels: Mapping[str, str], requirement: str) -> bool:
    found = _REQUIREMENT.fullmatch(requirement)
    if found is None:
        return False
    absent, name, equality, value, membership, values = found.groups()
    if membership:
        among = {one.strip() for one in values.split(",")}
        return (labels.get(name) in among) == (membership == "in")
    if equality:
        return (labels.get(name) == value) == (equality != "!=")
    return (name in labels) != bool(absent)


def _names(key: Key, requirement: str) -> bool:
    return requirement in (f"metadata.name={key.name}", f"metadata.namespace={key.namespace}")
