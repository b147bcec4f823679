"""`completion`: scripts that make a shell complete verbs, options, and names from the cluster."""

import click

__all__ = ["command", "for_kubectl"]

NO_FILES = 4
"""Cobra's ShellCompDirectiveNoFileComp: kubectl shall not offer the names of files."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script that completes the program it is asked of, in SHELL.

    \b
    bash: source <(kubectl-torchrun completion bash)
    zsh:  source <(kubectl-torchrun completion zsh)
    fish: kubectl-torchrun completion fish | source

    For `torchctl`, ask `torchctl`. kubectl's own completion finds `kubectl_complete-torchrun`, which Python's package
    installs beside `kubectl-torchrun`, and krew does not.
    """
    from click.shell_completion import get_completion_class

    # `kubectl torchrun` is completed by kubectl; the script is for the program that kubectl runs.
    program = (context.find_root().info_name or "torchctl").replace(" ", "-")
    variable = f"_{program}_COMPLETE".replace("-", "_").upper()
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, program, variable).source())


def for_kubectl() -> None:
    """The program `kubectl_complete-torchrun`, which kubectl asks for the words after `kubectl torchrun`.

    Its output is what kubectl's own completion makes: a word a line, a tab before its description, then a directive.
    """
    import sys

    from click.shell_completion import ShellComplete

    from torchctl.cli.kubectl import cli

    *before, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(cli, {}, "kubectl torchrun", "").get_completions(before, incomplete)
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{0 if any(item.type == 'file' for item in items) else NO_FILES}")
