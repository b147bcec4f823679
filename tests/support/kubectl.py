"""The command line, run in this process against a control plane."""

import sys

import anyio.to_thread
from click.testing import CliRunner, Result

from torchctl.cli.kubectl import cli
from torchctl.testing.controlplane import ControlPlane

__all__ = ["Kubectl"]


class Kubectl:
    """`kubectl torchrun` as a user whose kubeconfig names a namespace."""

    def __init__(self, kubeconfig: str, namespace: str = "default") -> None:
        self._options = ["--kubeconfig", kubeconfig, "--namespace", namespace]

    @classmethod
    def as_admin(cls, cluster: ControlPlane, namespace: str) -> "Kubectl":
        return cls(str(cluster.admin_kubeconfig), namespace)

    @property
    def program(self) -> list[str]:
        """The same command as a process of its own, to which a verb is added."""
        return [sys.executable, "-m", "torchctl", *self._options]

    async def __call__(self, *arguments: str) -> Result:
        """Runs a command in a thread, because it runs an event loop of its own."""
        return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(cli, [*self._options, *arguments]))

    async def says(self, *arguments: str) -> str:
        """The output of a command that succeeds and complains of nothing."""
        result = await self(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout
