"""The API server's refusal of a request."""

__all__ = ["Rejection"]


class Rejection(Exception):
    """The API server refuses a request."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
