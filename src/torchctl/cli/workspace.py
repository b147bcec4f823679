"""`torchctl workspace`: the programs of the sync pod and of the workers' init containers.

Write options as `--name=value`: a value that begins with '-' then never looks like an option. Every option can also be
given as an environment variable, such as TORCHCTL_WORKSPACE_FETCH_URL.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from torchctl.workspace.core import Limits
from torchctl.workspace.marker import Marker
from torchctl.workspace.program import TERMINATION_LOG, Command, run
from torchctl.workspace.urls import Redactor

__all__ = ["workspace"]

F = TypeVar("F", bound=Callable[..., Any])
_DIRECTORY = click.Path(path_type=Path)
_SECONDS = click.FloatRange(min=0, min_open=True)
_DEFAULT = Limits()
_CACHE_BYTES = 20 * 2**30
_MOST_UPLOADED = 100_000  # entries of one manifest, which is what the receiver's memory grows with
_TIMEOUT = click.option("--timeout", "timeout_s", type=_SECONDS, default=600.0, show_default=True, help="Seconds.")
_LOG = click.option(
    "--termination-log",
    type=_DIRECTORY,
    envvar="TORCHCTL_TERMINATION_LOG",
    default=TERMINATION_LOG,
    show_default=True,
    help="File that gets the result as JSON, or the failure.",
)


def _limited(command: F, max_entries: int = _DEFAULT.max_entries) -> F:
    for name, default, what in (
        ("--max-path", _DEFAULT.max_path, "Bytes of one path."),
        ("--max-ratio", _DEFAULT.max_ratio, "Unpacked to packed bytes of a compressed source."),
        ("--max-entries", max_entries, "Files, directories and links together."),
        ("--max-bytes", _DEFAULT.max_bytes, "Bytes of all files together."),
    ):
        command = click.option(name, type=click.IntRange(min=1), default=default, show_default=True, help=what)(command)
    return command


def _limits(options: dict[str, Any]) -> Limits:
    return Limits(**{name: options[name] for name in ("max_bytes", "max_entries", "max_ratio", "max_path")})


def _finish(step: str, main: Command, log: Path, redact: Redactor | None = None) -> None:
    raise SystemExit(run(step, main, termination_log=log, redact=redact or Redactor()))


@click.group()
def workspace() -> None:
    """Fetch and hand out a job's code (used in its pods)."""


@workspace.command()
@click.option("--source", type=click.Choice(["git", "zip", "s3", "existing"]), required=True)
@click.option("--root", type=_DIRECTORY, required=True, help="Mount point of the claim.")
@click.option("--url", default="", help="Of a git repository (https, ssh), a zip file (https), or in a bucket (s3).")
@click.option("--ref", default="", help="Branch, tag or full commit id; the default branch if absent.")
@click.option("--sub-path", default="", help="Directory in an existing claim.")
@click.option("--revision", default="", help="What it must be: for git a ref, else the SHA-256 of the content.")
@click.option("--secret-dir", "secret", type=_DIRECTORY, help="Mounted Secret with credentials.")
@_TIMEOUT
@_LOG
@_limited
def fetch(termination_log: Path, **options: Any) -> None:
    """Fill a claim from a source, once, and mark it."""
    from torchctl.workspace.fetch import fetch as fetch_workspace
    from torchctl.workspace.request import FetchRequest

    names = ("source", "root", "url", "ref", "sub_path", "revision", "secret", "timeout_s")
    request = FetchRequest(**{name: options[name] for name in names}, limits=_limits(options))

    async def main() -> Marker:
        return await fetch_workspace(request, environ=os.environ)

    _finish("fetch", main, termination_log)


@workspace.command()
@click.option("--root", type=_DIRECTORY, required=True, help="Mount point of the claim.")
@click.option("--revision", default="", help="The revision, or the digest, that is waited for; any if absent.")
@_TIMEOUT
@_LOG
def wait(root: Path, revision: str, timeout_s: float, termination_log: Path) -> None:
    """Wait until a claim has been filled by somebody else."""
    from torchctl.workspace.handout import wait as wait_for_marker

    async def main() -> Marker:
        return await wait_for_marker(root, timeout_s=timeout_s, revision=revision)

    _finish("wait", main, termination_log)


@workspace.command()
@click.option("--root", type=_DIRECTORY, required=True, help="Mount point of the claim.")
@click.option("--port", type=click.IntRange(1, 65535), default=8081, show_default=True, help="Of loopback.")
@click.option("--token", envvar="TORCHCTL_POD_UID", required=True, help="What clients must present: the pod's uid.")
@click.option("--revision", default="", help="The revision, or the digest, that is waited for; any if absent.")
@click.option("--cache", type=_DIRECTORY, help="Directory that keeps content for later uploads.")
@click.option("--cache-bytes", type=click.IntRange(min=1), default=_CACHE_BYTES, show_default=True, help="Its size.")
@click.option("--packed", is_flag=True, help="Keep an upload as one file, which copy and serve read.")
@_TIMEOUT
@_LOG
@partial(_limited, max_entries=_MOST_UPLOADED)
def receive(
    root: Path,
    port: int,
    token: str,
    revision: str,
    cache: Path | None,
    cache_bytes: int,
    packed: bool,
    timeout_s: float,
    termination_log: Path,
    **options: Any,
) -> None:
    """Wait until somebody has uploaded a workspace, or copied one by hand."""
    from torchctl.workspace.receive import receive as receive_workspace
    from torchctl.workspace.store import Store

    async def main() -> Marker:
        store = Store(cache, max_bytes=cache_bytes) if cache else None
        limits = _limits(options)
        return await receive_workspace(
            root,
            port=port,
            token=token,
            timeout_s=timeout_s,
            limits=limits,
            revision=revision,
            store=store,
            packed=packed,
        )

    _finish("receive", main, termination_log)


@workspace.command()
@click.option("--from", "source", type=_DIRECTORY, required=True, help="Mount point of the claim.")
@click.option("--to", "target", type=_DIRECTORY, required=True, help="Empty volume.")
@click.option("--marker/--no-marker", "marked", default=True, help="Wait for the claim's marker and verify against it.")
@_TIMEOUT
@_LOG
@_limited
def copy(source: Path, target: Path, marked: bool, timeout_s: float, termination_log: Path, **options: Any) -> None:
    """Copy a filled claim to another volume and verify the copy."""
    from torchctl.workspace.handout import copy as copy_workspace

    async def main() -> Marker:
        return await copy_workspace(source, target, timeout_s=timeout_s, limits=_limits(options), marked=marked)

    _finish("copy", main, termination_log)


@workspace.command()
@click.option("--root", type=_DIRECTORY, required=True, help="Mount point of the claim.")
@click.option("--host", default=None, help="Address to listen on; all if absent.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--streams", type=click.IntRange(min=1), default=16, show_default=True, help="Downloads at once.")
@click.option("--key", default="", help="What the archive's path ends in: who does not know it gets nothing.")
@_LOG
@_limited
def serve(
    root: Path, host: str | None, port: int, streams: int, key: str, termination_log: Path, **options: Any
) -> None:
    """Serve a filled claim to the pods of a job, until SIGTERM."""
    from torchctl.workspace.serve import serve as serve_workspace

    async def main() -> None:
        await serve_workspace(root, host=host, port=port, limits=_limits(options), streams=streams, key=key)

    _finish("serve", main, termination_log)


@workspace.command()
@click.option("--url", required=True, help="Of the archive that `serve` offers.")
@click.option("--to", "target", type=_DIRECTORY, required=True, help="Empty volume.")
@click.option("--digest", "expected", default="", help="The digest that the workspace must have.")
@_TIMEOUT
@_LOG
@_limited
def pull(url: str, target: Path, expected: str, timeout_s: float, termination_log: Path, **options: Any) -> None:
    """Get a workspace from the server of a job and verify it."""
    from torchctl.workspace.pull import pull as pull_workspace

    async def main() -> Marker:
        return await pull_workspace(url, target, timeout_s=timeout_s, limits=_limits(options), expected=expected)

    _finish("pull", main, termination_log)


@workspace.command()
@click.option("--root", type=_DIRECTORY, required=True, help="Mount point of the claim.")
@click.option("--host", default=None, help="Address to listen on; all if absent.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--streams", type=click.IntRange(min=1), default=16, show_default=True, help="Downloads at once.")
@click.option("--key", required=True, help="What the paths end in: who does not know it gets nothing.")
@click.option("--upload-port", type=click.IntRange(1, 65535), help="Of loopback, for later uploads; none if absent.")
@click.option("--token", envvar="TORCHCTL_POD_UID", default="", help="What clients must present: the pod's uid.")
@click.option("--cache", type=_DIRECTORY, help="Directory that keeps content for later uploads; default: on the claim.")
@click.option("--cache-bytes", type=click.IntRange(min=1), default=_CACHE_BYTES, show_default=True, help="Its size.")
@click.option("--in-place", is_flag=True, help="Workers have the claim mounted: change it file by file.")
@_LOG
@_limited
def companion(
    root: Path,
    host: str | None,
    port: int,
    streams: int,
    key: str,
    upload_port: int | None,
    token: str,
    cache: Path | None,
    cache_bytes: int,
    in_place: bool,
    termination_log: Path,
    **options: Any,
) -> None:
    """Serve a claim, take later trees, and tell the launchers of the job's workers what to run, until SIGTERM."""
    from torchctl.workspace.companionserver import Uploads
    from torchctl.workspace.companionserver import companion as run_companion

    if upload_port and not token:
        raise click.UsageError("--upload-port needs --token, or TORCHCTL_POD_UID in the environment")

    async def main() -> None:
        uploads = None
        if upload_port:
            uploads = Uploads(port=upload_port, token=token, cache=cache, cache_bytes=cache_bytes, in_place=in_place)
        await run_companion(
            root, host=host, port=port, limits=_limits(options), streams=streams, key=key, uploads=uploads
        )

    _finish("companion", main, termination_log)


@workspace.command("put-launcher")
@click.option("--to", "target", type=_DIRECTORY, required=True, help="Volume that the trainer mounts read-only.")
@_LOG
def put_launcher(target: Path, termination_log: Path) -> None:
    """Copy the launcher to a volume."""
    from torchctl.workspace.launcherfile import put_launcher as put

    async def main() -> None:
        put(target)

    _finish("put-launcher", main, termination_log)
