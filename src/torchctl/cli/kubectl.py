"""The `kubectl torchrun` plugin: so far it says which version it is."""

import click

__all__ = ["cli", "main"]


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torchctl", prog_name="kubectl torchrun")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Train with PyTorch on Kubernetes. There are no commands yet: submit a TorchrunJob with `kubectl apply`."""
    click.echo(ctx.get_help())


def main() -> None:
    cli(prog_name="kubectl torchrun")
