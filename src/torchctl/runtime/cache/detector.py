"""Finds code that changes cached objects. They are shared, but their labels and annotations are dicts.

For tests. `Store.watched` turns it on; it costs a text form per object.
"""

from torchctl.runtime.kinds import Key, Object

__all__ = ["MutationDetector"]


class MutationDetector:
    """Remembers each cached object as text, and compares it when the object is replaced or leaves.

    Attributes:
        found: A line for each object that was changed in place.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._forms: dict[int, tuple[Object, str, str]] = {}

    def replace(self, resource: str, key: Key, old: Object | None, new: Object | None) -> None:
        if old is not None:
            self._compare(*self._forms.pop(id(old), (old, "", repr(old))))
        if new is not None:
            self._forms[id(new)] = (new, f"{resource} {key}", repr(new))

    def finish(self) -> list[str]:
        """Compares all objects that are still cached, forgets them, and returns what was found so far."""
        for form in self._forms.values():
            self._compare(*form)
        self._forms.clear()
        found, self.found = self.found, []
        return found

    def _compare(self, obj: Object, name: str, before: str) -> None:
        if repr(obj) != before:
            self.found.append(f"cached object {name} was changed in place: {before} became {obj!r}")
