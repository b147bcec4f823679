"""The `torchctl` command: the verbs of `kubectl torchrun`, and the programs of the operator and its pods."""

import click

from torchctl.cli.lazy import Entry, Program, Section
from torchctl.cli.torchrun import SECTIONS
from torchctl.cli.torchrun.common import COMMON
from torchctl.runtime.memory import seldom_collected

__all__ = ["cli", "main"]

OPERATOR = Section(
    "Operator and its pods",
    {
        "run": Entry("torchctl.cli.run", "Run the operator.", "run", variables="TORCHCTL_RUN"),
        "workspace": Entry(
            "torchctl.cli.workspace",
            "Fetch and hand out a job's code (used in its pods).",
            "workspace",
            variables="TORCHCTL_WORKSPACE",
        ),
        "preflight": Entry(
            "torchctl.cli.preflight",
            "Ask what a worker needs before it starts (used in its pods).",
            "preflight",
            variables="TORCHCTL_PREFLIGHT",
        ),
    },
)


@click.command(
    cls=Program,
    sections=(*SECTIONS, OPERATOR),
    params=[*COMMON],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="torchctl", prog_name="torchctl")
def cli() -> None:
    """Distributed PyTorch training on Kubernetes: for people who train, and the operator."""


def main() -> None:
    with seldom_collected():
        cli.main(prog_name="torchctl")
