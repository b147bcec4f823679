"""Rules across fields, each stated as CEL for the API server and in Python for the operator.

The server refuses an object that breaks a rule. The operator checks again, because an object may be older than a rule,
and answers with a condition. A test holds both forms against the same objects.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from torchctl.api.casing import camel

__all__ = ["Problem", "Rule", "nesting", "problems"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for one object of a spec.

    `cel` is evaluated on it by the API server. `message` names the fields and says what to do. `holds` is the
    same in Python; None if only the server can judge, because the rule compares with the object before the edit.
    `field` is the one field that an error is attributed to. `at_creation` leaves alone what exists already, because
    nobody could write its status any more; `holds` judges it all the same.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None
    field: str = ""
    at_creation: bool = False

    def schema(self) -> dict[str, Any]:
        """One entry of x-kubernetes-validations."""
        rule = f"oldSelf.hasValue() || {self.cel}" if self.at_creation else self.cel
        entry: dict[str, Any] = {"rule": rule, "message": self.message}
        entry |= {"optionalOldSelf": True} if self.at_creation else {}
        return entry | ({"fieldPath": f".{self.field}"} if self.field else {})


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a spec breaks, with its place and the next step."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def problems(model: BaseModel, path: str = "spec") -> Iterator[Problem]:
    """Yields every rule that the spec breaks, outermost first, with the path of the object."""
    for rule in getattr(type(model), "rules", ()):
        if rule.holds is not None and not rule.holds(model):
            yield Problem(f"{path}.{rule.field}" if rule.field else path, rule.message)
    for name in type(model).model_fields:
        yield from _within(getattr(model, name), f"{path}.{camel(name)}")


def nesting(model: BaseModel, path: str = "spec") -> Iterator[Problem]:
    """Yields a problem if an object of Kubernetes in the spec is nested deeper than it could be written back.

    The schema keeps such objects as they are. No valid object of Kubernetes is nested so deeply.
    """
    try:
        model.model_dump_json()
    except ValueError:
        yield Problem(path, "an object in it nests too deeply: correct or remove it")


def _within(value: object, path: str) -> Iterator[Problem]:
    if isinstance(value, BaseModel):
        yield from problems(value, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _within(item, f"{path}[{index}]")
