"""One stream of structured log lines, from this package and from every library that uses `logging`.

JSON lines have the keys of controller-runtime's (`ts`, `level`, `logger`, `msg`, and inside a reconcile
`controller`, `namespace`, `name`, `reconcileID`), so that one log query fits operators in Go and this one.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from torchctl.runtime.kinds import Key
from torchctl.runtime.settings import LogSettings

__all__ = ["add_reconcile", "configure", "reconcile_context"]

QUIET = ("aiohttp.access", "asyncio", "kubernetes_asyncio.client.rest")
"""Loggers whose info and debug lines are dropped, because nobody reads them."""


def configure(settings: LogSettings | None = None, *, stream: TextIO | None = None) -> None:
    """Sends all logs of the process to `stream` (stderr) in the format of `settings`.

    Replaces what an earlier call configured. Values bound with `structlog.contextvars` are on every line,
    those of libraries too.
    """
    settings = settings if settings is not None else LogSettings()
    stream = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(settings, terminal=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


class reconcile_context:  # noqa: N801  # it is used like a function
    """Adds controller, namespace, name and reconcileID to every line that is logged inside.

    Most reconciles log nothing, so the id is made with the first line.
    """

    __slots__ = ("_controller", "_fields", "_key", "_new_id", "_token")

    def __init__(self, controller: str, key: Key, new_id: Callable[[], str]) -> None:
        self._controller, self._key, self._new_id = controller, key, new_id
        self._fields: dict[str, str] = {}

    def __enter__(self) -> None:
        self._token = _reconcile.set(self)

    def __exit__(self, *_: object) -> None:
        _reconcile.reset(self._token)

    @property
    def fields(self) -> Mapping[str, str]:
        if not self._fields:
            fields = {"controller": self._controller, "name": self._key.name, "reconcileID": self._new_id()}
            if self._key.namespace:
                fields["namespace"] = self._key.namespace
            self._fields = fields  # at once: a thread of the reconcile may log, too
        return self._fields


_reconcile: ContextVar[reconcile_context | None] = ContextVar("torchctl_reconcile", default=None)


def add_reconcile(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Adds the fields of the reconcile that logs the line. A structlog processor: programs with their own need it."""
    if (current := _reconcile.get()) is not None:
        for name, value in current.fields.items():
            event.setdefault(name, value)
    return event


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        add_reconcile,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.StackInfoRenderer(),
    ]


def _formatter(settings: LogSettings, *, terminal: bool) -> logging.Formatter:
    console = settings.format == "console" or (settings.format == "auto" and terminal)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *(_console(colors=terminal) if console else _json()),
        ],
    )


def _json() -> list[Processor]:
    return [
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("msg"),
        structlog.processors.JSONRenderer(sort_keys=False),
    ]


def _console(*, colors: bool) -> list[Processor]:
    # Plain tracebacks, because rich ones print local variables, which may hold tokens.
    return [
        structlog.dev.ConsoleRenderer(
            colors=colors, timestamp_key="ts", exception_formatter=structlog.dev.plain_traceback
        )
    ]
