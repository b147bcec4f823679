"""Strings that thousands of cached objects have in common are kept once."""

from typing import Any

import msgspec

from torchctl.runtime.kinds import Object

__all__ = ["Interner"]

LIMIT = 65_536
"""Strings remembered; beyond it the memory starts afresh, so that a stream of unique values cannot fill it."""


class Interner:
    """Makes decoded objects share namespaces, label keys and values, and owner references."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def share(self, obj: Object) -> None:
        """Replaces what `obj` has in common with earlier ones. Only for objects that nobody has seen yet."""
        meta = obj.metadata
        if len(self._known) > LIMIT:
            self._known.clear()
        one = self._one
        set_ = msgspec.structs.force_setattr
        set_(meta, "namespace", one(meta.namespace))
        if meta.labels:
            set_(meta, "labels", {one(name): one(value) for name, value in meta.labels.items()})
        if meta.owner_references:
            set_(meta, "owner_references", one(meta.owner_references))

    def _one(self, value: Any) -> Any:
        return self._known.setdefault(value, value)
