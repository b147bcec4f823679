"""The `kubectl torchrun` plugin: the verbs for people who train. `torchctl` has the same ones."""

import click

from torchctl.cli.lazy import Program
from torchctl.cli.torchrun import SECTIONS
from torchctl.cli.torchrun.common import COMMON
from torchctl.runtime.memory import seldom_collected

__all__ = ["cli", "main"]


@click.command(
    cls=Program, sections=SECTIONS, params=[*COMMON], context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="torchctl", prog_name="kubectl torchrun")
def cli() -> None:
    """Train with PyTorch on Kubernetes."""


def main() -> None:
    with seldom_collected():
        cli.main(prog_name="kubectl torchrun", complete_var="_KUBECTL_TORCHRUN_COMPLETE")
