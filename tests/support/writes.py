"""The writes of a story, named so that two tellings of it can be compared, and the points between them."""

import re
from dataclasses import dataclass

from torchctl.runtime.kinds import EVENT
from torchctl.testing.faults import Exchange, Moment

__all__ = ["Point", "Write"]

RANDOM = (
    (re.compile(r"(?<=/events/).+"), "*"),
    (re.compile(r"(?<=/controllerrevisions/)(.+)-\w+"), r"\1-*"),
    (re.compile(r"(?<=/podgroups/)(pg-.+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), r"\1-*"),
    (re.compile(r"(?<=/pods/)(.+-\d+)-[a-z0-9]{5}$"), r"\1-*"),
)
"""What of a path differs between two tellings, besides the namespace."""


@dataclass(frozen=True, slots=True, order=True)
class Write:
    """A write to one object or one subresource, in any namespace."""

    method: str
    path: str

    @classmethod
    def of(cls, exchange: Exchange, namespace: str) -> "Write":
        path = exchange.path.replace(namespace, "<namespace>")
        for pattern, stable in RANDOM:
            path = pattern.sub(stable, path)
        return cls(exchange.method, path)

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('/<namespace>/')[2] or self.path}"

    @property
    def is_event(self) -> bool:
        return f"/{EVENT.plural}" in self.path


@dataclass(frozen=True, slots=True)
class Point:
    """Where an operator is cut down: at the n-th such write (the first is 1), and when."""

    write: Write
    number: int
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment.name} {self.write} #{self.number}"
