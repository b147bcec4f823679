"""How the API server says that it cannot read an object."""

__all__ = ["UNREADABLE_MARK"]

UNREADABLE_MARK = "failed to create typed patch object"
"""How it answers, with status 500, to an apply of what has not the shape of its kind: a field that it does not know, a
text for a number. No other try will do better."""
