"""Linux namespaces for one node, so that it leaves nothing behind.

The node's processes have a network, a mount table and a process table of their own. When the first process of
that process table ends, the kernel kills all others; with the last one go the mounts, the interfaces, the
iptables rules, the routes. That happens however the tests end, SIGKILL included, without cleanup code.

Three things are not namespaced: files, which are all in one directory; cgroups, which are all below one name;
and some settings of the kernel, see `_TUNABLES`.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import anyio

from torchctl.testing.process import ManagedProcess

__all__ = ["Namespaces"]

# The kubelet sets these for the whole machine unless they have its values already: it sees files that have them.
_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}

# The first process of the node. Images are unpacked into memory: that is faster, and gone at once. /run is private
# for the runtime's sockets and network namespaces, /var for what the kubelet and CNI write at fixed places. The
# process ignores SIGCHLD, so that orphans do not become zombies, and ends when `hold` is closed at the other end.
_FIRST = """
set -eu
directory=$1
shift
mount --make-rshared /
mount -t overlay overlay -o "lowerdir=/var,upperdir=$directory/var/upper,workdir=$directory/var/work" /var
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/node
mount --bind "$directory" /run/node
mount -t tmpfs -o mode=711 tmpfs /run/node/containerd
for tunable in "$@"; do
    mount --bind "$directory/tunables/$tunable" "/proc/sys/$tunable"
done
echo 1 > /proc/sys/net/ipv4/ip_forward
trap '' CHLD
exec 3< "$directory/hold"
touch "$directory/ready"
exec cat <&3
"""


class Namespaces:
    """The namespaces of a node's processes. Inside, `directory` is at the short path /run/node."""

    inside = Path("/run/node")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._unshare = ManagedProcess(
            "namespaces",
            [
                _program("unshare"),
                *("--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
                *(_program("sh"), "-c", _FIRST, "node", str(directory), *_TUNABLES),
            ],
            directory / "logs" / "namespaces.log",
        )
        self._hold = -1

    @property
    def pid(self) -> int:
        """The id, on this machine, of a process in the node's network namespace."""
        return self._unshare.pid

    @property
    def enter(self) -> Sequence[str]:
        """The prefix of a command line that runs inside. Killing that process kills the command."""
        own = f"/proc/{self.pid}/ns"
        return (
            _program("nsenter"),
            *(f"--net={own}/net", f"--mount={own}/mnt", f"--pid={own}/pid_for_children"),
            *(_program("setpriv"), "--pdeathsig", "KILL"),
        )

    async def start(self, timeout_s: float = 10.0) -> None:
        """Creates the namespaces. Raises TimeoutError, or RuntimeError with the reason if the kernel refuses."""
        self._write()
        self._unshare.start()
        with anyio.fail_after(timeout_s):
            while not (self._directory / "ready").exists():
                if not self._unshare.running:
                    raise RuntimeError(f"no namespaces for a node (are you root?): {self._unshare.tail()}")
                await anyio.sleep(0.02)

    async def end(self) -> None:
        """Ends every process inside and waits until they are gone; works while the caller is being cancelled."""
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1
        with anyio.move_on_after(10, shield=True):
            if self._unshare.returncode is None and self._unshare.running:
                await self._unshare.wait()
        self._unshare.kill()

    def _write(self) -> None:
        for name in ("var/upper", "var/work", "containerd"):
            (self._directory / name).mkdir(parents=True)
        for name, value in _TUNABLES.items():
            path = self._directory / "tunables" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
        hold = self._directory / "hold"
        os.mkfifo(hold)
        self._hold = os.open(hold, os.O_RDWR | os.O_CLOEXEC)


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is missing: run hack/node/install.sh")
    return path
