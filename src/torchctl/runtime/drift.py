"""Tells if somebody has changed what we applied, by our entry of managedFields. Pure.

Whoever changes one of our fields takes it out of that entry: that is drift, whatever the values look like. Two things
the entry does not tell, and the API server's answers to our applies do:

- The API server keeps no trace of some values, such as an empty list. If an answer does not cover the intent, our entry
  in it is remembered, and later ones are compared with it.
- The entry of a map that lost all its fields looks as one that is owned as a whole (`runtime.fieldset`). In an answer
  nothing is lost, so its nodes without children are owned as a whole, and so they are in all objects of the kind. A
  field of which no answer has told yet counts as drifted, and the write that follows tells. Kubernetes' own kinds in
  groups without a dot need none: their schemas have no maps whose entries have fields of their own.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from torchctl.runtime.fieldset import Path, Tree, covers
from torchctl.runtime.intent import annotation_of, immutable_fields, without
from torchctl.runtime.kinds import ObjectMeta, OwnedFields, OwnerReference, kind_of

__all__ = ["DriftDetector"]

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 1024
"""How much is remembered of each of the two. What is forgotten costs one write."""

UNMANAGED = frozenset({"name", "namespace", "uid", "resourceVersion", "ownerReferences"})
"""Metadata that is not looked up among the owned fields: nobody owns it, or its values are compared."""


class DriftDetector:
    """Compares objects with the last apply of one field manager."""

    def __init__(self, manager: str) -> None:
        self._manager = manager
        self._uncovered: dict[tuple[str, str], tuple[OwnedFields, ...]] = {}
        self._atomic: dict[tuple[tuple[str, str], Path], None] = {}

    def learn(self, intent: Mapping[str, Any], answer: ObjectMeta) -> None:
        """Takes in the API server's answer to an apply of this intent."""
        kind, atomic = kind_of(intent), list[Path]()

        def is_atomic(path: Path) -> bool:
            atomic.append(path)
            return True

        if not self._is_covered(intent, answer, is_atomic):
            _remember(self._uncovered, self._state(answer), answer.applied)
        for path in atomic:
            _remember(self._atomic, (kind, path), None)

    def drifted(self, intent: Mapping[str, Any], meta: ObjectMeta) -> bool:
        """Tells if somebody has changed an object to which this intent was applied last."""
        kind = kind_of(intent)
        builtin = "." not in kind[0].partition("/")[0]
        kept = self._is_covered(intent, meta, lambda path: builtin or (kind, path) in self._atomic)
        return not kept and meta.applied != self._uncovered.get(self._state(meta))

    def _is_covered(self, intent: Mapping[str, Any], meta: ObjectMeta, is_atomic: Callable[[Path], bool]) -> bool:
        """Tells if the manager owns every mutable field of the intent, so that all have the value that it applied."""
        compared = without(intent, (("apiVersion",), ("kind",), *immutable_fields(intent)))
        # An empty label map is owned only until somebody adds a label, and the same goes for all that metadata has.
        meta_fields = intent["metadata"].items()
        compared["metadata"] = {name: value for name, value in meta_fields if value and name not in UNMANAGED}
        references = msgspec.convert(intent["metadata"].get("ownerReferences", ()), tuple[OwnerReference, ...])
        owned = [_tree(entry.fields) for entry in meta.applied if entry.manager == self._manager]
        return all(ref in meta.owner_references for ref in references) and any(
            tree and covers(tree, compared, is_atomic) for tree in owned
        )

    def _state(self, meta: ObjectMeta) -> tuple[str, str]:
        """Names an object with the intent that was applied to it last."""
        return meta.uid, meta.annotations.get(annotation_of(self._manager), "")


@lru_cache(maxsize=256)
def _tree(fields: str) -> Tree:
    """Decodes an entry's fields. Objects of one form have the same, because uids are taken out of them."""
    tree: Tree = msgspec.json.decode(fields)
    return tree


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
