"""A node leaves nothing behind, however its owner ends."""

import subprocess
import sys
from pathlib import Path

from waiting import until

from torchctl.testing.node import Network
from torchctl.testing.node.leftovers import sweep, traces
from torchctl.testing.node.network import connected

# What a node's processes are: inside the namespaces, in sessions of their own, with mounts.
OWNER = """
import subprocess, sys
import anyio
from torchctl.testing.node import Network
from torchctl.testing.node.leftovers import new_directory
from torchctl.testing.node.namespaces import Namespaces
from torchctl.testing.node.network import connect

async def main():
    directory, network = new_directory(), Network(int(sys.argv[1]))
    (directory / "logs").mkdir()
    namespaces = Namespaces(directory)
    await namespaces.start()
    connect(network, namespaces.pid, namespaces.enter)
    subprocess.Popen([*namespaces.enter, "sh", "-c", "mount -t tmpfs tmpfs /mnt; setsid sleep 1234"])
    print(directory, flush=True)
    await anyio.sleep(1000)

anyio.run(main)
"""


async def test_killed_owner_leaves_no_process_and_no_interface(network: Network) -> None:
    """The owner's directory keeps nothing but files."""
    other = Network.free()
    owner = start(other)
    try:
        assert owner.stdout
        directory = Path(owner.stdout.readline().strip())

        async def started() -> bool:
            return any("sleep 1234" in trace for trace in traces(directory))

        await until(started, timeout_s=10)
    finally:
        owner.kill()
        owner.communicate()

    async def only_files() -> bool:
        return traces(directory) == [str(directory)] and not connected(other)

    await until(only_files, timeout_s=10)
    sweep()
    assert traces(directory) == []


def start(network: Network) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", OWNER, str(network.index)], stdout=subprocess.PIPE, text=True)
