"""What all verbs share: the options by which kubectl finds a cluster, and the connection to it.

The options stand before or after the verb; after it wins. Importing this costs nothing but click.
"""

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from torchctl.cli import exits

if TYPE_CHECKING:
    from torchctl.client import Cluster, Target

__all__ = ["COMMON", "SECONDS", "connected", "target", "verb"]

P = ParamSpec("P")
T = TypeVar("T")
_GIVEN = "torchctl.target"


class _Seconds(click.ParamType):  # type: ignore[type-arg]  # click 8.2 knows no arguments
    """A duration as kubectl takes it: `30s`, `1m30s`, `2h`, or seconds without a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from torchctl.client.durations import parse

        if isinstance(value, float):
            return value
        seconds = parse(value)
        if seconds is None:
            self.fail(f"{value!r} is no duration; write 30s, 5m or 1h30m", param, ctx)
        return seconds


SECONDS = _Seconds()


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keeps an option's value for `target`; one that is not given leaves what an outer command was given."""
    if value not in (None, (), 0):
        context.meta.setdefault(_GIVEN, {})[option.name] = value


def _more(context: click.Context, option: click.Parameter, value: int) -> None:
    exits.verbosity(value)


def _option(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_keep, **attributes)


COMMON: tuple[click.Parameter, ...] = (
    _option("--kubeconfig", metavar="PATH", help="Kubeconfig. Default: $KUBECONFIG, ~/.kube/config."),
    _option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
    _option("-n", "--namespace", metavar="NAME", help="Namespace. Default: the context's."),
    _option("--as", "user", metavar="USER", help="User to impersonate."),
    _option("--as-group", "groups", metavar="GROUP", multiple=True, help="Group to impersonate; may be repeated."),
    _option(
        "--request-timeout",
        "request_timeout_s",
        type=SECONDS,
        metavar="DURATION",
        help="Time for one request, such as 30s. Default: by the kind of request.",
    ),
    click.Option(
        ["-v", "--verbose"], count=True, expose_value=False, callback=_more, help="Say more if something goes wrong."
    ),
)
"""The options of all verbs, and of the programs themselves."""


def target(context: click.Context | None = None) -> "Target":
    """Returns the cluster, namespace and user that the command line names. Default: of the command that runs."""
    from torchctl.client.cluster import Target

    return Target(**(context or click.get_current_context()).meta.get(_GIVEN, {}))


def verb(function: Callable[Concatenate["Cluster", P], Awaitable[int | None]]) -> click.Command:
    """Makes a command of an asynchronous function whose first argument is the connected cluster.

    The function raises the errors of `torchctl.client.errors`; the program turns them into a line and an exit status.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> int | None:
        return connected(lambda cluster: function(cluster, *args, **kwargs))

    command = click.command(run)
    command.params += COMMON
    return command


def connected(function: Callable[["Cluster"], Awaitable[T]]) -> T:
    """Runs an asynchronous function with the cluster that the command line names."""
    import anyio

    _configure_logs()
    return anyio.run(_connected, target(), function)


async def _connected(where: "Target", function: Callable[["Cluster"], Awaitable[T]]) -> T:
    import anyio

    from torchctl.client.cluster import connect

    with anyio.CancelScope() as scope, _on_interrupt(scope.cancel):
        async with connect(where) as cluster:
            return await function(cluster)
    raise KeyboardInterrupt


@contextmanager
def _on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Calls something at the first Ctrl-C; a second one ends the program at once.

    asyncio would cancel the task, and a task can lose that. A cancelled scope cancels until it is left.
    """
    import asyncio
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        if not loop.remove_signal_handler(SIGINT):
            raise KeyboardInterrupt  # both came before the loop looked
        stop()

    loop.add_signal_handler(SIGINT, interrupted)
    try:
        yield
    finally:
        loop.remove_signal_handler(SIGINT)


def _configure_logs() -> None:
    """Keeps logs of the libraries out of the output, unless -v asks for them or somebody has configured them."""
    import logging

    logging.basicConfig(format="%(name)s: %(message)s", level=logging.INFO if exits.is_verbose() else logging.CRITICAL)
