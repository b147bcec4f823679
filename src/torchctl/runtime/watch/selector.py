"""Selects the objects of a kind that are watched."""

from dataclasses import dataclass

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
