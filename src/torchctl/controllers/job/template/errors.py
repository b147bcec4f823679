"""A job and a queue that are each valid and cannot work together."""

__all__ = ["Impossible"]


class Impossible(Exception):
    """No template can be made of the two. Whoever wrote either can fix it: `reason` and `message` say how."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
