"""Logs the warnings that the API server sends along with an answer: deprecated versions, fields that it drops."""

import re
from collections.abc import Mapping

from torchctl.runtime.client.requests import HttpRequest

__all__ = ["Warnings"]

KEPT = 256
"""The number of texts that are logged; later ones are dropped, so that no answer can fill the log."""

WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
"""One warning, as RFC 7234 and the API server write it; a header may hold several."""


class Warnings:
    """Logs each text once, as client-go's deduplicating handler does."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def log(self, headers: Mapping[str, str], request: HttpRequest) -> None:
        """Logs the warnings of one answer."""
        for text in texts(headers):
            if text not in self._told and len(self._told) < KEPT:
                self._told.add(text)
                _log(warning=text, verb=request.verb, path=request.path)


def _log(**values: str) -> None:
    # structlog is imported with the first warning: it costs each command of the plugin 0.1 s of CPU, and most see none.
    from torchctl.runtime import lean  # isort: skip  # noqa: F401  # for its effect, before structlog

    import structlog

    structlog.get_logger("torchctl.client").warning("the API server warns", **values)


def texts(headers: Mapping[str, str]) -> list[str]:
    """Returns the texts of all `Warning` headers."""
    every = headers.getall("Warning") if hasattr(headers, "getall") else [headers["Warning"]]
    return [re.sub(r"\\(.)", r"\1", text) for header in every for text in WARNING.findall(header)]
