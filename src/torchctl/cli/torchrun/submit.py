"""`submit`: creates a job and brings it the directory's code."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchctl.cli.torchrun.common import SECONDS, verb
from torchctl.cli.torchrun.suggestions import queue_names

if TYPE_CHECKING:
    from torchctl.client import Cluster
    from torchctl.client.submission import Request, Submission

__all__ = ["command"]

_ARGV = "torchctl.argv"
_AGAIN = (
    "The same line with --name {{name}} goes on with it. To give up: kubectl torchrun delete {{name}} -n {namespace}"
)


class _WithArgv(click.Command):
    """A command that keeps what stands behind `--` apart: there it is an argv, before it a shell line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            index = args.index("--")
            args, ctx.meta[_ARGV] = args[:index], tuple(args[index + 1 :])
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "If it belongs to the command, write the command in quotes, or behind --."
            raise click.UsageError(f"There is no option {error.option_name}. {hint}", ctx) from None


@verb
@click.argument("line", nargs=-1, metavar="[COMMAND | -- ARG...]")
@click.option("-f", "--filename", metavar="FILE", help="A TorchrunJob as YAML or JSON, - for standard input.")
@click.option("--queue", default="", metavar="NAME", shell_complete=queue_names, help="The queue.")
@click.option("--gpus", type=int, metavar="N", help="GPUs of the whole job; 0 for none.")
@click.option("--nodes", type=int, metavar="N", help="Whole nodes of the queue, instead of --gpus.")
@click.option("--elastic", metavar="MIN:MAX", help="The fewest and the most nodes of an elastic job.")
@click.option("-e", "--env", multiple=True, metavar="KEY=VALUE", help="A variable of the program; may be repeated.")
@click.option("--image", default="", metavar="IMAGE", help="The image. Default: the queue's.")
@click.option("--name", default="", metavar="NAME", help="The job's name. Default: from the directory, with a suffix.")
@click.option("--git", default="", metavar="URL[@REF]", help="Take the code from git instead of the directory.")
@click.option("--git-secret", default="", metavar="NAME", help="Secret of the namespace with the credentials for it.")
@click.option(
    "--workspace",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The directory that is sent. Default: the current one.",
)
@click.option("--no-workspace", is_flag=True, help="Send nothing: the code is in the image.")
@click.option("--hot-reload", is_flag=True, help="Let `sync` bring new code into the running job.")
@click.option("--warm-start", is_flag=True, help="As --hot-reload, with torch imported already: seconds faster.")
@click.option(
    "--files-only", is_flag=True, help="As --hot-reload, but all workers mount one claim, and only its files change."
)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the job and its pods; may be repeated."
)
@click.option(
    "--annotation", "annotations", multiple=True, metavar="KEY=VALUE", help="An annotation of both; may be repeated."
)
@click.option("--follow", is_flag=True, help="Show the job's output, and exit as the job does.")
@click.option("--dry-run", is_flag=True, help="Print the job and what would be sent; change nothing.")
@click.option("-o", "--output", type=click.Choice(["name", "yaml", "json"]), help="Print the job in this form.")
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default=600.0,
    show_default="10m",
    metavar="DURATION",
    help="For how long to wait until the cluster takes the code.",
)
async def _submit(cluster: "Cluster", /, **said: Any) -> None:
    """Create a job and send it the current directory.

    \b
    kubectl torchrun submit --queue h100-training --gpus 8 "python train.py --epochs 10"
    kubectl torchrun submit -f job.yaml
    kubectl torchrun submit --queue dev --gpus 1 -- python train.py --note "two words"

    COMMAND is a shell line in quotes; what stands behind -- is run without a shell. With --name the same line can be
    repeated after an interruption: nothing is made twice.
    """
    from random import SystemRandom

    from torchctl.client.submission import build

    submission = build(_request(said, cluster.namespace), SystemRandom().choice)
    directory = said["directory"] or Path()
    if said["dry_run"]:
        await _show(submission, directory, said["output"])
    else:
        await _run(cluster, submission, directory, said)


command = _WithArgv("submit", callback=_submit.callback, params=_submit.params, help=_submit.help)


def _request(said: dict[str, Any], default_namespace: str) -> "Request":
    from torchctl.cli.torchrun.common import target
    from torchctl.client.submission import Request, elastic_of, pairs_of

    return Request(
        queue=said["queue"],
        gpus=said["gpus"],
        nodes=said["nodes"],
        elastic=elastic_of(said["elastic"]) if said["elastic"] else None,
        command=_line(said["line"]),
        args=click.get_current_context().meta.get(_ARGV, ()),
        env=pairs_of("--env", said["env"]),
        image=said["image"],
        name=said["name"],
        git=said["git"],
        git_secret=said["git_secret"],
        directory=(said["directory"] or Path()).resolve().name,
        workspace=_workspace(said["directory"], said["no_workspace"]),
        hot_reload=_hot_reload(said),
        labels=pairs_of("--label", said["labels"]),
        annotations=pairs_of("--annotation", said["annotations"]),
        manifest=_manifest(said["filename"]),
        file=said["filename"] or "",
        namespace=target(click.get_current_context()).namespace,
        default_namespace=default_namespace,
    )


def _hot_reload(said: dict[str, Any]) -> str:
    from torchctl.client.errors import UsageError

    if said["files_only"] and said["warm_start"]:
        raise UsageError("--files-only and --warm-start exclude each other", "Leave one out.")
    ways = {"files_only": "Files", "warm_start": "WarmStart", "hot_reload": "Restart"}
    return next((value for way, value in ways.items() if said[way]), "")


def _line(words: tuple[str, ...]) -> str | None:
    from torchctl.client.errors import UsageError

    if len(words) > 1:
        raise UsageError(
            f"the command has {len(words)} parts, beginning with {words[0]!r} and {words[1]!r}",
            'Write it in quotes ("python train.py --epochs 10"), or behind --.',
        )
    return words[0] if words else None


def _workspace(directory: Path | None, none: bool) -> bool | None:
    from torchctl.client.errors import UsageError

    if directory and none:
        raise UsageError("--workspace and --no-workspace exclude each other", "Leave one out.")
    return False if none else True if directory else None


def _manifest(filename: str | None) -> dict[str, Any] | None:
    from torchctl.client.manifests import read

    return read(filename) if filename else None


async def _run(cluster: "Cluster", submission: "Submission", directory: Path, said: dict[str, Any]) -> None:
    from torchctl.api.phases import TERMINAL
    from torchctl.cli.exits import farewell
    from torchctl.cli.torchrun.follow import follow
    from torchctl.cli.torchrun.progress import Teller
    from torchctl.client.code import DirectoryCode, read_code
    from torchctl.client.submit import submit

    farewell("Nothing was submitted.")
    with Teller(_AGAIN.format(namespace=submission.namespace)) as teller:
        codes: list[DirectoryCode] = []

        async def read() -> DirectoryCode:
            codes.append(await read_code(cluster, submission.namespace, directory, teller.progress))
            teller.listed(codes[0].content.tree)
            return codes[0]

        uploads = read if submission.uploads else None
        made = await submit(cluster, submission, uploads, teller, patience_s=said["timeout_s"])
        for code in codes:
            teller.sent(code.sent)
    name, namespace = made.job.name, made.job.namespace
    await _print(cluster, name, namespace, said["output"])
    if said["follow"]:
        await follow(made.job)
    elif made.job.phase in TERMINAL:
        click.echo(f"{name} has ended: {made.job.phase}. Another --name runs it again.", err=True)
        await made.job.wait()  # raises if it failed
    else:
        click.echo(f"Follow it with: kubectl torchrun logs -f {name} -n {namespace}", err=True)


async def _print(cluster: "Cluster", name: str, namespace: str, output: str | None) -> None:
    from torchctl.cli.torchrun.output import print_objects
    from torchctl.client.views import JOB

    if output is not None:
        with cluster.explained(f"TorchrunJob {name} in namespace {namespace}"):
            found = await cluster.client.get_raw(JOB, name, namespace)
        print_objects([found], output, one=True)


async def _show(submission: "Submission", directory: Path, output: str | None) -> None:
    """Prints the job, and on standard error what would be sent."""
    from torchctl.cli.torchrun.output import print_objects
    from torchctl.cli.torchrun.progress import listing
    from torchctl.client.code import list_tree

    print_objects([submission.body], output or "yaml", one=True)
    if submission.uploads:
        click.echo(listing(await list_tree(directory)), err=True)
    else:
        click.echo("Nothing would be sent: the code does not come from the directory.", err=True)
