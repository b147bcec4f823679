"""`torchctl preflight`: checks that a worker's init container runs before torchrun starts.

Exit status: 0 if torchrun can use the server; 69 if etcd has its v2 API off; 76 if it cannot be used as it is; 75 if
no server answered in time. The termination message says what is wrong and the next step.
"""

import re
from pathlib import Path

import click

from torchctl.workspace.program import TERMINATION_LOG, run
from torchctl.workspace.urls import Redactor

__all__ = ["preflight"]

_FILE = click.Path(path_type=Path)
_ENDPOINT = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}\Z")


def _endpoint(context: click.Context, option: click.Parameter, value: str) -> str:
    if not _ENDPOINT.match(value):
        raise click.BadParameter("host:port is needed")
    return value


@click.group()
def preflight() -> None:
    """Ask what a worker needs before it starts (used in its pods)."""


@preflight.command()
@click.option("--endpoint", callback=_endpoint, required=True, help="host:port of the server.")
@click.option("--protocol", type=click.Choice(["http", "https"]), default="http", show_default=True)
@click.option("--ca", type=_FILE, help="Authority of the server's certificate; not verified if absent.")
@click.option("--certificate", type=_FILE, help="Client certificate.")
@click.option("--key", type=_FILE, help="Its key, if it is in another file.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds to wait for an answer.",
)
@click.option(
    "--termination-log",
    type=_FILE,
    envvar="TORCHCTL_TERMINATION_LOG",
    default=TERMINATION_LOG,
    show_default=True,
    help="File that gets the failure.",
)
def etcd(
    endpoint: str,
    protocol: str,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    timeout_s: float,
    termination_log: Path,
) -> None:
    """Ask an etcd server whether it has the v2 API, which torchrun's backends etcd and etcd-v2 need."""
    from torchctl.preflight.etcd import Server, check

    server = Server(endpoint=endpoint, tls=protocol == "https", ca=ca, certificate=certificate, key=key)

    async def main() -> None:
        await check(server, timeout_s=timeout_s)

    raise SystemExit(run("preflight", main, termination_log=termination_log, redact=Redactor()))
