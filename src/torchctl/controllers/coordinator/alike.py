"""Tells gangs that ask for the same by the identity of one object: a decision looks at every gang that waits."""

from collections.abc import Hashable
from weakref import WeakValueDictionary

__all__ = ["Kind", "kind_of", "kind_of_equal"]


class Kind:
    """What those have in common that ask for the same. Compared by identity, which reads nothing of them."""

    __slots__ = ("__weakref__",)


_KINDS: WeakValueDictionary[tuple[Hashable, ...], Kind] = WeakValueDictionary()
"""The kinds of the gangs that there are, which keep the objects: nothing else gets their identities meanwhile."""


def kind_of(*asked: object) -> Kind:
    """Returns the kind of those that ask for the same objects. Whoever has the kind must keep the objects, too."""
    key = tuple(map(id, asked))
    return _KINDS.get(key) or _KINDS.setdefault(key, Kind())


def kind_of_equal(*asked: Hashable) -> Kind:
    """Returns the kind of those that ask for equal things, none of which is a number."""
    return _KINDS.get(asked) or _KINDS.setdefault(asked, Kind())
