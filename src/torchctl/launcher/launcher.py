"""The launcher: first process of a worker. torchrun is its child, which it can stop and start again with new code.

It runs in the user's image with whatever Python is there: this one file, standard library only, Python 3.8 to 3.14.

    python3 launcher.py --companion URL --index I --nodes N [--min M] [--expected E] --nproc P
                        --workdir DIR [--patience SECONDS] [--warm] [--verbose] -- torchrun ...

It reports to the job's companion, which answers with orders (docs/design/launcher.md has the protocol): take a tree,
stop, run as a member of a world. For the rest it is as if it was not there: it hands on signals, reaps, exits as its
child did and prints nothing. If it cannot do its part it says so once, and the program runs as it would without it.

`Core` decides and does no I/O. `Loop` does what `Core` says, and never blocks: whatever may take long (talking,
downloading, moving a tree) is a `Task`, a forked child that hands back one result and takes its memory with it.
At rest there is one such child, blocked in a poll of the companion.

Imports are few because each costs memory in every worker for as long as it trains.
"""

from __future__ import annotations

import os
import sys


def given_environment() -> dict[str, str]:
    """Return the environment that this process was given: in the C locale Python adds a variable for its children."""
    environ = dict(os.environ)
    with open("/proc/self/environ", "rb") as file:
        if b"\0LC_CTYPE=" not in b"\0" + file.read():
            environ.pop("LC_CTYPE", None)
    return environ


if __name__ == "__main__" and not sys.flags.isolated and sys.argv[1:2] != ["--warm-parent"]:
    # Without -I, a json.py of the user's would be imported below.
    again = [sys.executable, "-I", "-S", os.path.abspath(__file__), *sys.argv[1:]]
    os.execve(sys.executable, again, given_environment())

import contextlib
import errno
import io
import json
import select
import signal
import socket
import time

MYPY = False
if MYPY:
    from typing import Any, BinaryIO, Callable, Collection, Iterator, NoReturn

VERSION = 1
POLL_S = 20
"""How long the companion may take to answer a report."""
START_S = 60
"""A companion that was not heard for so long after the start is done without."""
WORLD_S = 300
"""A first world that has not come about for so long is done without."""
EXIT_S, PENDING_S = 10, 120
"""How long a program's end waits for a companion that does not answer; longer if new code is about to be started."""
AGAIN_S = 600
"""How long a launcher that has nothing to run waits for the others."""
GRACE_S = 300
"""Bounds a stop by order; torchrun itself kills its ranks after 30 s, or as told."""
FORCE_S = 30
"""How long a process that was killed may take to end; one that hangs in the kernel never does."""
TASK_S = {"talk": POLL_S + 40, "stage": 6 * 3600}
"""Bounds what runs in a child, whatever the other side does; an hour if it is not here."""
WARM_S = 180
RETRY_S = (1, 30)

BUSY, READY, RUNNING, EXITED, LEAVING = "busy", "ready", "running", "exited", "leaving"
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals after which the program is over, so it is not started again."""
OTHERS = (signal.SIGUSR1, signal.SIGUSR2)
"""Handed on only to a program that has a handler, because they would kill any other one."""


class Core:
    """What a launcher knows, and what it decides on each event. Methods return actions; `report` is what it says."""

    def __init__(
        self, facts: dict[str, Any], revision: str, now: float, *, warming: bool = False, patience_s: float = START_S
    ) -> None:
        self.facts = facts
        self.state = BUSY if warming else READY
        self.revision = revision
        self.staged = self.staging = self.goal = self.runs = self.stopped = ""
        self.world: dict[str, Any] | None = None
        self.epoch = self.exit = self.signal = 0
        self.trouble: dict[str, str] | None = None
        self.heard = self.ran = self.child = self.swapping = self.halted = self.listened = False
        self.deadline = now + patience_s
        self.retry_at: float | None = None
        self.pause = float(RETRY_S[0])

    def report(self) -> dict[str, Any]:
        return {
            **self.facts,
            "version": VERSION,
            "state": self.state,
            "revision": self.revision,
            "staged": self.staged,
            "runs": self.runs,
            "world": self.world,
            "stopped": self.stopped,
            "epoch": self.epoch,
            "exit": self.exit,
            "order": self._order(),
            "trouble": self.trouble,
        }

    def next_at(self) -> float:
        times = [] if self.state in (RUNNING, LEAVING, BUSY) else [self.deadline]
        return min([*times, *([self.retry_at] if self.retry_at is not None else [])], default=float("inf"))

    def warmed(self, now: float) -> list[Any]:
        """The warm parent is there, or there will be none."""
        if self.state == BUSY and not self.ran:
            self.state = READY
        return []

    def answer(self, order: dict[str, Any], now: float) -> list[Any]:
        if not self.heard and not self.ran:
            self.deadline = now + WORLD_S
        if self.state == EXITED and not self.listened:
            self.deadline, self.listened = now + AGAIN_S, True
        self.heard = True
        kind, revision = order.get("kind"), order.get("revision", "")
        if self.state == LEAVING:
            return []
        if kind == "take":
            return self._take(revision)
        if kind == "swap" and self.state == RUNNING and revision == self.staged and not self.swapping:
            self.goal, self.swapping = revision, True
            return [("swap", revision)]
        if kind == "stop" and self.state in (RUNNING, READY, EXITED):
            return self._stop(revision, now)
        if kind == "run" and self.state in (READY, EXITED):
            return self._run(order["world"])
        if kind == "exit" and self.state == EXITED:
            return [("exit", self.exit)]
        return []

    def refused(self, message: str, now: float) -> list[Any]:
        """The companion is there, and is not one that this launcher can talk to."""
        said = [("say", f"the companion refused the launcher ({message}); new code cannot be taken up here")]
        if not self.heard and not self.ran and self.state == READY:
            return [*said, *self._plain()]
        return said

    def gone(self, code: int, now: float) -> list[Any]:
        """The program and all that it left behind have ended."""
        self.child = False
        if self.state == LEAVING:
            return [("exit", 128 + self.signal if self.halted else code)]
        if self.state == BUSY:
            self.stopped = self.world["id"] if self.world else ""
            return self._settle(now)
        if not self.heard:
            return [("exit", code)]
        self.state, self.exit, self.listened = EXITED, code, False
        self.deadline = now + (PENDING_S if self.staged else EXIT_S)
        return []

    def told(self, signum: int) -> list[Any]:
        """A signal came from outside."""
        if signum in OTHERS:
            return [("signal", signum)] if self.child else []
        if not self.child:
            return [("exit", self.exit if self.state == EXITED else 128 + signum)]
        stopping = self.state == BUSY
        self.state, self.signal = LEAVING, signum
        self.halted = self.halted or stopping
        return [] if stopping and signum == signal.SIGTERM else [("signal", signum)]

    def staged_or_not(self, revision: str, error: str, now: float) -> list[Any]:
        if revision != self.staging:
            return []
        self.staging = ""
        if not error:
            self.staged, self.trouble, self.pause = revision, None, float(RETRY_S[0])
            return []
        self.trouble = {"revision": revision, "message": error[:500]}
        self.retry_at, self.pause = now + self.pause, min(self.pause * 2, float(RETRY_S[1]))
        return [("say", f"cannot take the revision {revision}: {error}")]

    def swapped(self, revision: str, error: str, now: float) -> list[Any]:
        self.swapping = False
        if error:
            return [("say", f"the workspace could not be put in place and is in pieces: {error}"), ("fail", 1)]
        self.revision, self.staged, self.trouble = revision, "", None
        return self._settle(now) if self.state == BUSY else []

    def tick(self, now: float) -> list[Any]:
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at = None
            wanted = self.trouble["revision"] if self.trouble else ""
            return self._take(wanted) if wanted else []
        if now < self.deadline or self.state in (RUNNING, LEAVING, BUSY):
            return []
        if self.state == EXITED:
            return [("exit", self.exit)]
        if self.ran:
            return [("say", f"no world came about in {AGAIN_S} s after the program was stopped"), ("exit", 1)]
        if self.trouble:
            return [("exit", 1)]
        why = "no world came about" if self.heard else "the companion cannot be reached"
        return [("say", f"{why}; the program starts without it"), *self._plain()]

    def _order(self) -> str:
        if self.state == BUSY and self.goal:
            return f"stop {self.goal}"
        if self.swapping:
            return f"swap {self.goal}"
        if self.staging or self.retry_at is not None:
            return f"take {self.staging or (self.trouble or {}).get('revision', '')}"
        return ""

    def _take(self, revision: str) -> list[Any]:
        if not revision or revision in (self.revision, self.staged, self.staging) or self.swapping:
            return []
        if self.retry_at is not None and self.trouble and self.trouble["revision"] == revision:
            return []
        if self.trouble and self.trouble["revision"] != revision:
            self.trouble, self.pause = None, float(RETRY_S[0])
        self.staged, self.staging, self.retry_at = "", revision, None
        return [("stage", revision)]

    def _stop(self, revision: str, now: float) -> list[Any]:
        self.goal, was = revision, self.state
        self.state = BUSY
        return [("stop",)] if was == RUNNING else self._settle(now)

    def _settle(self, now: float) -> list[Any]:
        """After a stop: put the tree in place if it is there, then be ready."""
        if self.child or self.swapping:
            return []
        if self.goal != self.revision and self.goal == self.staged:
            self.swapping = True
            return [("swap", self.goal)]
        self.state, self.goal = READY, ""
        self.deadline = now + AGAIN_S
        return []

    def _run(self, world: dict[str, Any]) -> list[Any]:
        if world["revision"] != self.revision or world["epoch"] <= self.epoch:
            return []
        self.epoch = world["epoch"]
        return self._start(world)

    def _plain(self) -> list[Any]:
        return self._start(None)

    def _start(self, world: dict[str, Any] | None) -> list[Any]:
        self.world, self.runs, self.state = world, self.revision, RUNNING
        self.ran = self.child = True
        self.halted = False
        return [("start", world)]


# ---------------------------------------------------------------------------------------------------------------------
# The environment of torchrun


def world_environment(environ: dict[str, str], world: dict[str, Any]) -> dict[str, str]:
    """Return the environment in which torchrun, whoever starts it, joins this world."""
    master, port, nodes, rank = world["master"], str(world["port"]), str(world["nodes"]), str(world["rank"])
    found = dict(environ)
    for name in ("PET_RDZV_CONF", "PET_STANDALONE"):
        found.pop(name, None)
    found.update(
        PET_NNODES=nodes,
        PET_NODE_RANK=rank,
        PET_MASTER_ADDR=master,
        PET_MASTER_PORT=port,
        PET_RDZV_BACKEND="static",
        PET_RDZV_ENDPOINT=f"[{master}]:{port}" if ":" in master else f"{master}:{port}",
        PET_RDZV_ID=world["id"],
        PET_MAX_RESTARTS="0",  # a failed world is started again as a whole, by the companion
        NNODES=nodes,
        NODE_RANK=rank,
        MASTER_ADDR=master,
        MASTER_PORT=port,
    )
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Trees: the rules of torchctl.workspace in small

MARKER, STAGING = ".sync_success", ".torchctl-staging"
OTHERS_OF_A_CLAIM = {
    *(".torchctl-store", ".torchctl-wish", ".torchctl-wish.tmp", ".torchctl-placed", ".torchctl-placed.tmp"),
    *(".torchctl-pack", "lost+found"),
}
RESERVED = {MARKER, MARKER + ".tmp", STAGING} | OTHERS_OF_A_CLAIM
CHUNK = 1 << 20


class Unfit(Exception):
    """Something is not as it must be; the message is for people."""


def tree_digest(root: str) -> str:
    """Return the digest of a tree as torchctl.workspace.tree defines it."""
    import hashlib

    whole = hashlib.sha256()
    for path, kind, status in sorted(walk(os.fsencode(root), b"")):
        full = os.path.join(os.fsencode(root), path)
        if kind == "d":
            whole.update(b"d %s\0" % path)
        elif kind == "l":
            whole.update(b"l %s\0%s\0" % (os.readlink(full), path))
        elif not kind:
            raise Unfit(f"{os.fsdecode(path)!r} is a device, a socket or a pipe")
        else:
            content, size = hashlib.sha256(), 0
            with open(full, "rb", buffering=0) as file:
                for chunk in iter(lambda: file.read(CHUNK), b""):
                    content.update(chunk)
                    size += len(chunk)
            flag = b"x" if status.st_mode & 0o100 else b"-"
            whole.update(b"f %s %d %s %s\0" % (flag, size, content.hexdigest().encode(), path))
    return "sha256:" + whole.hexdigest()


def walk(root: bytes, below: bytes, besides: Collection[bytes] = ()) -> Iterator[tuple[bytes, str, os.stat_result]]:
    """Yield path, kind (d, l, f, or empty) and status of all entries below a directory but for reserved names."""
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in entries:
            if not below and os.fsdecode(entry.name) in RESERVED:
                continue
            path = os.path.join(below, entry.name)
            if path in besides:
                continue
            status = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                yield path, "l", status
            elif entry.is_dir():
                yield path, "d", status
                yield from walk(root, path, besides)
            else:
                yield path, "f" if entry.is_file() else "", status


def unpack(stream: BinaryIO, root: str) -> None:
    """Write a tar stream into an empty directory; links last, so that nothing is written through one."""
    import tarfile

    links, modes = [], []
    with tarfile.open(fileobj=stream, mode="r|", errorlevel=2) as archive:
        for info in archive:
            archive.members = []  # type: ignore[attr-defined]  # it would keep them all
            parts = [part for part in info.name.split("/") if part not in ("", ".")]
            if not parts:
                continue
            if info.name.startswith("/") or ".." in parts or parts[0] in RESERVED:
                raise Unfit(f"the archive has the unsafe name {info.name!r}")
            path = os.path.join(root, *parts)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if info.isdir():
                os.makedirs(path, exist_ok=True)
                modes.append((path, (info.mode & 0o777) | 0o700))
            elif info.issym():
                links.append((info.linkname, path))
            elif info.isreg():
                _write(path, archive.extractfile(info), info)
            else:
                raise Unfit(f"the archive has {info.name!r}, which is of a kind that a workspace cannot have")
    for target, path in links:
        os.symlink(target, path)
    for path, mode in reversed(modes):
        os.chmod(path, mode)


def _write(path: str, content: Any, info: Any) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        for chunk in iter(lambda: content.read(CHUNK), b""):
            file.write(chunk)
        os.fchmod(descriptor, (info.mode & 0o777) | 0o600)
        os.utime(descriptor, (info.mtime, info.mtime))


def placed_revision(workdir: str) -> str:
    """Return the digest of the tree that an init container put into the work directory; empty if none did."""
    try:
        with open(os.path.join(workdir, MARKER), encoding="utf-8") as file:
            return str(json.loads(file.read(65536))["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def stage(url: Url, workdir: str, revision: str) -> dict[str, Any]:
    """Download a tree beside the one that is in place, and verify it."""
    staging = os.path.join(workdir, STAGING)
    _check_writable(workdir)
    remove(os.path.join(staging, "tree"))
    os.makedirs(os.path.join(staging, "tree"))
    try:
        marker = _download(url, staging, revision)
        write_record(os.path.join(staging, COMES), record(os.path.join(staging, "tree"), set()))
        check_fits(workdir, mounts_below(workdir))
    except BaseException:
        remove(os.path.join(staging, "tree"))  # a full disk is the program's too
        raise
    with open(os.path.join(staging, "marker"), "w", encoding="utf-8") as file:
        file.write(marker)
    return {}


def _download(url: Url, staging: str, revision: str) -> str:
    """Unpack the archive of a revision, and return its marker."""
    while True:
        connection, head, stream = url.request("GET", f"/archive/{url.key}", timeout_s=60)
        if head.status != 503:
            break
        stream.close()
        connection.close()
        after = number(head.fields.get("retry-after", ""), 2)  # others download; they come back at different times
        time.sleep(min(after, 30) * (0.5 + os.urandom(1)[0] / 256))
    with connection, stream:
        if head.status != 200:
            raise Unfit(f"the companion answered {head.status} instead of the archive")
        if head.fields.get("x-workspace-digest") != revision:
            raise Unfit("the companion has another revision by now")
        unpack(stream, os.path.join(staging, "tree"))
    found = tree_digest(os.path.join(staging, "tree"))
    if found != revision:
        raise Unfit(f"the archive has the digest {found}")
    return head.fields.get("x-workspace-marker") or json.dumps({"digest": revision})


NOTE_TRIES = 3
PLACED, COMES = "placed", "comes"
"""Records of the tree that is in place and of the one that is staged, in the staging directory."""
DIRECTORY = b"d"


def note(workdir: str) -> dict[str, Any]:
    """Record the tree that an init container put in place: what is not as in the record later is the program's."""
    os.makedirs(os.path.join(workdir, STAGING), exist_ok=True)
    write_record(os.path.join(workdir, STAGING, PLACED), record(workdir, mounts_below(workdir)))
    return {}


def signature(path: bytes) -> bytes:
    """Return what tells a file from any other that takes its place, and shows that it was changed; empty if none."""
    import stat

    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    if stat.S_ISDIR(status.st_mode):
        return DIRECTORY
    return b"%d.%d.%d" % (status.st_ino, status.st_size, status.st_mtime_ns)


def record(root: str, mounted: set[bytes]) -> dict[bytes, bytes]:
    """Return the signatures of all files, links and directories below a directory, without other volumes."""
    whole = os.fsencode(root)
    return {path: signature(os.path.join(whole, path)) for path, _, _ in walk(whole, b"", mounted)}


def write_record(path: str, found: dict[bytes, bytes]) -> None:
    with open(path + ".tmp", "wb") as file:
        file.writelines(b"%s %s\0" % (how, name) for name, how in found.items())
    os.rename(path + ".tmp", path)


def read_record(path: str) -> dict[bytes, bytes]:
    with open(path, "rb") as file:
        lines = file.read().split(b"\0")[:-1]
    return {name: how for how, _, name in (line.partition(b" ") for line in lines)}


def mounts_below(workdir: str) -> set[bytes]:
    """Return the paths in the work directory at which other volumes are mounted. What is there is never the tree's."""
    inside = os.fsencode(os.path.realpath(workdir)) + b"/"
    with open("/proc/self/mountinfo", "rb") as file:
        places = {line.split()[4].decode("unicode_escape").encode("latin-1") for line in file}
    return {place[len(inside) :] for place in places if place.startswith(inside)}


def _is_hidden(path: bytes, mounted: set[bytes]) -> bool:
    return any(path == place or path.startswith(place + b"/") for place in mounted)


def _check_writable(workdir: str) -> None:
    """Find out before anything is downloaded if the tree in place could be replaced."""
    if not os.access(workdir, os.W_OK | os.X_OK):
        raise Unfit(f"no permission to change {workdir!r}")


def check_fits(workdir: str, mounted: set[bytes]) -> None:
    """Find out before anything is stopped if the staged tree can be put in place."""
    root, staging = os.fsencode(workdir), os.path.join(workdir, STAGING)
    if not os.path.exists(os.path.join(staging, PLACED)):
        raise Unfit(f"nobody wrote down what the tree in {workdir!r} consists of, as the launcher started")
    goes, comes = read_record(os.path.join(staging, PLACED)), read_record(os.path.join(staging, COMES))
    for path, how in comes.items():
        if how != DIRECTORY and any(place.startswith(path + b"/") for place in mounted):
            raise Unfit(f"a volume is mounted below {os.fsdecode(path)!r}, which is a file of the new tree")
    for path in {name for name, how in (*goes.items(), *comes.items()) if how == DIRECTORY}:
        full = os.path.join(root, path)
        if not _is_hidden(path, mounted) and signature(full) == DIRECTORY and not os.access(full, os.W_OK | os.X_OK):
            raise Unfit(f"no permission to change {os.fsdecode(full)!r}")


def swap(workdir: str, revision: str) -> dict[str, Any]:
    """Put the staged tree in place of the one that is there; what the program made or changed since its start stays.

    File by file. Directories stay the ones that they are: a program may be in one, another volume may be mounted there.
    """
    staging = os.path.join(workdir, STAGING)
    with open(os.path.join(staging, "marker"), encoding="utf-8") as file:
        if json.load(file)["digest"] != revision:
            raise Unfit("another revision was staged")
    mounted = mounts_below(workdir)
    check_fits(workdir, mounted)
    old = os.path.join(staging, f"old-{time.time_ns()}")
    os.mkdir(old)
    replace(os.fsencode(workdir), os.fsencode(old), mounted)
    os.rename(os.path.join(staging, COMES), os.path.join(staging, PLACED))
    os.rename(os.path.join(staging, "marker"), os.path.join(workdir, MARKER))
    return {"old": old}


def replace(root: bytes, old: bytes, mounted: set[bytes]) -> None:
    """Remove the files of the tree that is in place, and move those of the staged one there.

    A path that is a file in one tree and a directory in the other is moved to `old`, with what the program made there.
    """
    staging = os.path.join(root, os.fsencode(STAGING))
    goes, comes = (read_record(os.path.join(os.fsdecode(staging), name)) for name in (PLACED, COMES))
    for path, how in goes.items():
        full = os.path.join(root, path)
        if how != DIRECTORY and path not in comes and not _is_hidden(path, mounted) and signature(full) == how:
            os.unlink(full)
    for number, path in enumerate(sorted(comes)):  # a directory comes before what is in it
        if not _is_hidden(path, mounted):
            _place(path, comes[path] == DIRECTORY, root, os.path.join(old, b"%d" % number))
    directories = {path for path, how in (*goes.items(), *comes.items()) if how == DIRECTORY} | {b""}
    for path in sorted(directories, reverse=True):
        # If a file's size and second are the same as before, Python would take its old code.
        if not _is_hidden(path, mounted):
            remove(os.path.join(os.fsdecode(os.path.join(root, path)), "__pycache__"))
        if path and path not in comes:
            with contextlib.suppress(OSError):  # the program made something there
                os.rmdir(os.path.join(root, path))


def _place(path: bytes, is_directory: bool, root: bytes, aside: bytes) -> None:
    source, target = os.path.join(root, os.fsencode(STAGING), b"tree", path), os.path.join(root, path)
    there = signature(target)
    if there and (there == DIRECTORY) != is_directory:
        os.rename(target, aside)
        there = b""
    if not is_directory:
        os.rename(source, target)
    elif not there:
        os.mkdir(target)
        os.chmod(target, os.stat(source).st_mode & 0o777)


def remove(directory: str) -> None:
    """Remove a directory, also one in which nobody may write."""
    import shutil

    shutil.rmtree(directory, ignore_errors=True)
    if os.path.isdir(directory) and not os.path.islink(directory):
        for path, _, _ in os.walk(directory):
            with contextlib.suppress(OSError):
                os.chmod(path, 0o700)
        shutil.rmtree(directory, ignore_errors=True)


def clean(directory: str) -> dict[str, Any]:
    remove(directory)
    return {}


# ---------------------------------------------------------------------------------------------------------------------
# Talking, in a forked child: so it may block, also in the resolver


class Head:
    def __init__(self, status: int, fields: dict[str, str]) -> None:
        self.status = status
        self.fields = fields


class Chunked(io.RawIOBase):
    """The content of an answer that comes in chunks."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.left, self.ended = stream, 0, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.left and not self.ended:
            self.left = int(self.stream.readline(100).partition(b";")[0], 16)
            self.ended = not self.left
        data = self.stream.read(min(len(buffer), self.left))
        buffer[: len(data)] = data
        self.left -= len(data)
        if data and not self.left:
            self.stream.readline(100)
        return len(data)


class Url:
    """The companion's address: `http://host[:port]/.../KEY`."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        authority, _, path = rest.partition("/")
        host, port = authority, "80"
        if ":" in authority.rpartition("]")[2]:
            host, _, port = authority.rpartition(":")
        self.key = path.rpartition("/")[2]
        self.host, self.authority = host.strip("[]"), authority
        if scheme != "http" or not self.host or not self.key or not port.isdigit():
            raise ValueError(f"{url!r} is not an address of a companion")
        self.port = int(port)

    def request(
        self, method: str, path: str, body: bytes = b"", *, timeout_s: float
    ) -> tuple[socket.socket, Head, BinaryIO]:
        connection = socket.create_connection((self.host, self.port), 5)
        connection.settimeout(timeout_s)
        request = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.authority}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(request.encode("ascii") + body)
        stream = connection.makefile("rb")
        words = stream.readline(4096).split(None, 2)
        if not words:
            raise Unfit("the companion closed the connection")
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise Unfit("the companion does not speak HTTP")
        fields = {}
        for _ in range(100):
            name, _, value = stream.readline(65536).decode("latin-1").partition(":")
            if not name.strip():
                break
            fields[name.strip().lower()] = value.strip()
        head = Head(int(words[1]), fields)
        if fields.get("transfer-encoding", "").lower() == "chunked":  # as proxies send it, those of a mesh too
            return connection, head, io.BufferedReader(Chunked(stream))
        return connection, head, stream


def talk(url: Url, report: dict[str, Any]) -> dict[str, Any]:
    """Send a report and return the order."""
    body = json.dumps(report).encode()
    connection, head, stream = url.request("POST", f"/launcher/v{VERSION}/{url.key}", body, timeout_s=POLL_S + 15)
    with connection, stream:
        content = stream.read(65536)
    if head.status in (400, 401, 403, 404, 405, 410, 426):
        return {"refused": f"HTTP {head.status} {content[:200].decode('utf-8', 'replace')}".strip()}
    if head.status != 200:
        raise Unfit(f"HTTP {head.status}")
    return {"order": json.loads(content)}


# ---------------------------------------------------------------------------------------------------------------------
# Processes


def become_subreaper() -> bool:
    """Become the parent of whatever loses its own below this process, as PID 1 is."""
    if os.getpid() == 1:
        return True
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def families(besides: set[int]) -> dict[int, list[int]]:
    """Return the processes that live, by their parent, without those in `besides`."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read(4096).rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state not in (b"Z", b"X") and int(name) not in besides:
            children.setdefault(int(parent), []).append(int(name))
    return children


def below(root: int, children: dict[int, list[int]]) -> list[int]:
    """Return the processes below `root`."""
    found, todo = [], [root]
    while todo:
        found += children.get(todo[0], [])
        todo += children.get(todo.pop(0), [])
    return found


def descendants(root: int, besides: set[int]) -> list[int]:
    """Return the processes below `root` that live, without those in `besides` and what is below them."""
    return below(root, families(besides))


def is_torchrun(pid: int) -> bool:
    """Tell if a process is torchrun's agent: what it has to say once its ranks have ended is of no use to anybody."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(65536).split(b"\0")
    except OSError:
        return False
    return any(os.path.basename(word) in (b"torchrun", b"torch.distributed.run", b"--warm-parent") for word in words)


def kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def catches(pid: int, signum: int) -> bool:
    """Tell if a process has a handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    except (OSError, ValueError):
        pass
    return False


def tell(text: str) -> None:
    """Write a line to stderr, if that can be done: a reader that is gone or slow must not end the training."""
    with contextlib.suppress(OSError):
        os.write(2, f"torchctl launcher: {text}\n".encode("utf-8", "replace"))


def reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for signum in (*ENDING, *OTHERS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
        signal.signal(signum, signal.SIG_DFL)


def exit_code(status: int) -> int:
    """Return a wait status as a container's exit code."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Task:
    """One function in a forked child, which hands back a dict; {"error": text} if it fails or dies."""

    def __init__(self, kind: str, function: Callable[..., dict[str, Any]], *args: Any) -> None:
        self.kind, self.args, self.data = kind, args, b""
        self.fd, write = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.fd)
            os.close(write)
            raise
        if self.pid == 0:
            signal.alarm(TASK_S.get(kind, 3600))
            self._child(write, function, args)
        os.close(write)

    def _child(self, write: int, function: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> NoReturn:
        try:
            reset_signals()
            os.close(self.fd)
            try:
                result = function(*args)
            except Unfit as error:
                result = {"error": str(error)}
            except Exception as error:
                result = {"error": f"{type(error).__name__}: {error}"}
            data = json.dumps(result).encode()
            while data:
                data = data[os.write(write, data) :]
        finally:
            os._exit(0)

    def read(self) -> bool:
        """Read what there is; true at the end."""
        chunk = os.read(self.fd, 65536)
        self.data += chunk
        return not chunk

    def wait(self) -> dict[str, Any]:
        while not self.read():
            pass
        return self.result()

    def result(self) -> dict[str, Any]:
        os.close(self.fd)
        try:
            result = json.loads(self.data)
            return result if isinstance(result, dict) else {"error": "no result"}
        except ValueError:
            return {"error": "it was killed, or took too long"}


def start_program(argv: list[str], environ: dict[str, str], cwd: str) -> int:
    """Start a program in a process group of its own: a terminal would send its signals to both of us."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        if os.isatty(0):
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.tcsetpgrp(0, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    except OSError:
        pass
    code = 126
    try:
        reset_signals()
        os.chdir(cwd)
        os.execvpe(argv[0], argv, environ)
    except OSError as error:
        code = 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def listen() -> tuple[int, int]:
    """Handle signals from now on, and return the pipe into which they are written; its other end has to stay open."""
    wake = os.pipe()
    for fd in wake:
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake[1], warn_on_full_buffer=False)
    for signum in (*ENDING, *OTHERS, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)
    return wake


class Loop:
    """Does what the core says, and tells it what happens."""

    def __init__(
        self, core: Core, url: Url, workdir: str, argv: list[str], warm: Warm | None, wake: tuple[int, int]
    ) -> None:
        self.core, self.url, self.workdir, self.argv, self.warm, self.wake = core, url, workdir, argv, warm, wake
        self.environ, self.cwd = given_environment(), os.getcwd()
        self.verbose = False
        self.program = 0
        self.status: int | None = None  # of the program, while what it left behind is ended
        self.stopping_since: float | None = None
        self.forced_since: float | None = None
        self.asked: set[int] = set()  # processes that were asked to end
        self.tasks: dict[int, Task] = {}
        self.talking: Task | None = None
        self.said: set[str] = set()
        self.seq, self.sent, self.sent_at = 0, "", 0.0
        self.talk_at, self.pause = 0.0, 0.2
        self.look_at = float("inf")  # when to look again at processes that are ending
        self.ending: int | None = None
        self.logs = ""  # what torchrun writes for a world, empty as a rule

    def run(self) -> int:
        while self.ending is None:
            self._talk()
            for fd in self._wait():
                self._readable(fd)
            now = time.monotonic()
            if now >= self.look_at:
                self._look()
            if self.warm and self.warm.is_settled(now):
                self._say(self.warm.trouble)
                self._do(self.core.warmed(now))
            self._do(self.core.tick(now))
        self._end_all()
        return self.ending

    def _wait(self) -> list[int]:
        poll, until = select.poll(), float("inf")
        fds = [self.wake[0], *(task.fd for task in self.tasks.values())]
        if self.warm and self.warm.fd >= 0:
            fds.append(self.warm.fd)
            until = self.warm.deadline
        for fd in fds:
            poll.register(fd, select.POLLIN)
        until = min(until, self.core.next_at(), self.look_at, float("inf") if self.talking else self.talk_at)
        timeout = None if until == float("inf") else max(0, int((until - time.monotonic()) * 1000) + 1)
        return [fd for fd, _ in poll.poll(timeout)]

    def _readable(self, fd: int) -> None:
        if fd == self.wake[0]:
            self._signals()
        elif self.warm and fd == self.warm.fd:
            self.warm.read()
        for task in [task for task in self.tasks.values() if task.fd == fd]:
            if task.read():
                del self.tasks[task.pid]
                self._result(task.kind, task.args, task.result())

    def _signals(self) -> None:
        for signum in os.read(self.wake[0], 4096):
            if signum == signal.SIGCHLD:
                self._reap()
            else:
                self._do(self.core.told(signum))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self.warm and pid == self.warm.pid:
                self.warm.pid = 0
            if pid == self.program and self.status is None:
                self._trace("ended", exit_code(status))
                self.status = status
                self._look()
            elif self.status is not None or self.stopping_since is not None:
                self.look_at = 0  # one less

    def _besides(self) -> set[int]:
        return {*self.tasks, *([self.warm.pid] if self.warm and self.warm.pid else [])}

    def _look(self) -> None:
        """Look at what has to end: first as the program wants, in the end by force. Nothing may stay behind."""
        now = time.monotonic()
        self.look_at = float("inf")
        if self.status is None and self.stopping_since is None:
            return
        children = families(self._besides())
        if self.status is None:
            if self._is_late(now) or (is_torchrun(self.program) and not below(self.program, children)):
                self._force([self.program], now)  # its ranks are gone; its own end would take another second
        elif not below(os.getpid(), children):
            self._gone(now)
            return
        elif self._is_late(now) or not self._was_told():
            self._force(below(os.getpid(), children), now)
        else:
            self._ask(children.get(os.getpid(), []))  # the others have a parent that hands it on
        self.look_at = now + 0.05

    def _is_late(self, now: float) -> bool:
        return self.stopping_since is not None and now - self.stopping_since >= GRACE_S

    def _was_told(self) -> bool:
        """Whether what the program left was to end with it, and may not know: a shell dies before its children."""
        by_signal = self.status is not None and os.WIFSIGNALED(self.status)
        return self.core.state == BUSY or (self.core.state == LEAVING and by_signal)

    def _ask(self, pids: list[int]) -> None:
        for pid in set(pids) - self.asked:
            self.asked.add(pid)
            kill(pid, self.core.signal or signal.SIGTERM)

    def _force(self, pids: list[int], now: float) -> None:
        self.forced_since = now if self.forced_since is None else self.forced_since
        for pid in pids:
            kill(pid, signal.SIGKILL)
        if now - self.forced_since >= FORCE_S:
            self._say(f"processes were killed and did not end within {FORCE_S} s: {sorted(pids)[:10]}")
            self.ending = 1 if self.status is None or self.core.state == BUSY else exit_code(self.status)

    def _gone(self, now: float) -> None:
        assert self.status is not None
        code = exit_code(self.status)
        self.program, self.status, self.stopping_since, self.forced_since = 0, None, None, None
        self.asked.clear()
        if self.core.state == BUSY:
            self._forget_message()
        self._do(self.core.gone(code, now))

    def _do(self, actions: list[Any]) -> None:
        for action, *args in actions:
            self._trace(action, *args)
            getattr(self, "_do_" + action)(*args)

    def _do_say(self, text: str) -> None:
        self._say(text)

    def _do_start(self, world: dict[str, Any] | None) -> None:
        environ = world_environment(self.environ, world) if world else dict(self.environ)
        self._forget_message()
        self._change_logs(environ, world)
        if self.warm:
            self.program = self.warm.start(environ, self.cwd) if world else 0
            self._say(self.warm.trouble)
            if self.program:
                return
            self._end_all(self._besides())  # a parent that was slow may have forked nevertheless
        self.program = start_program(self.argv, environ, self.cwd)

    def _change_logs(self, environ: dict[str, str], world: dict[str, Any] | None) -> None:
        """Give torchrun a directory for this world, where it would make one each time, and remove the last one."""
        if self.logs:
            self._begin("clean", clean, self.logs)
            self.logs = ""
        if world and not environ.get("PET_LOG_DIR"):
            name = f"torchelastic_{self.core.facts['incarnation']}_{world['epoch']}"
            path = os.path.join(environ.get("TMPDIR") or "/tmp", name)
            with contextlib.suppress(OSError):
                os.mkdir(path, 0o700)
                self.logs = environ["PET_LOG_DIR"] = path

    def _do_stop(self) -> None:
        self.stopping_since = time.monotonic()
        self.asked = set()  # torchrun hands it on to its ranks
        kill(self.program, signal.SIGTERM)
        self.look_at = self.stopping_since + 0.02

    def _do_signal(self, signum: int) -> None:
        if self.status is None and (signum in ENDING or catches(self.program, signum)):
            kill(self.program, signum)

    def _do_stage(self, revision: str) -> None:
        for task in [task for task in self.tasks.values() if task.kind == "stage"]:
            self._drop(task)
        self._begin("stage", stage, self.url, self.workdir, revision)

    def _do_swap(self, revision: str) -> None:
        self._begin("swap", swap, self.workdir, revision)

    def _do_exit(self, code: int) -> None:
        self.ending = code

    def _do_fail(self, code: int) -> None:
        self.ending = code

    def _trace(self, *what: Any) -> None:
        if self.verbose:
            words = " ".join(str(word) for word in what)
            tell(f"{time.time():.3f} {self.core.state} {words}")

    def _begin(self, kind: str, function: Callable[..., dict[str, Any]], *args: Any) -> Task | None:
        try:
            task = Task(kind, function, *args)
        except OSError as error:  # no process or descriptor left
            self._result(kind, args, {"error": f"cannot start a process: {error.strerror}"})
            return None
        self.tasks[task.pid] = task
        return task

    def _drop(self, task: Task) -> None:
        kill(task.pid, signal.SIGKILL)
        os.close(task.fd)
        del self.tasks[task.pid]

    def _result(self, kind: str, args: tuple[Any, ...], result: dict[str, Any]) -> None:
        now, error = time.monotonic(), result.get("error", "")
        self._trace(kind, result)
        if kind == "talk":
            self.talking = None
            self._heard(result, now)
        elif kind == "stage":
            self._do(self.core.staged_or_not(args[-1], error, now))
        elif kind == "swap":
            self._do(self.core.swapped(args[-1], error, now))
            if "old" in result:
                self._begin("clean", clean, result["old"])

    def _heard(self, result: dict[str, Any], now: float) -> None:
        before = self.sent
        if "order" in result:
            self.pause = 0.2
            try:
                actions = self.core.answer(result["order"], now)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                actions = [("say", f"the companion gave an order that is none: {error!r}")]
            self._do(actions)
            quick = now - self.sent_at < 1 and json.dumps(self.core.report()) == before
            self.talk_at = now + 1 if quick else now
        elif "refused" in result:
            self._do(self.core.refused(result["refused"], now))
            self.talk_at = now + 30
        else:
            self.talk_at = now + self.pause
            self.pause = min(self.pause * 2, 5)

    def _talk(self) -> None:
        """Keep one report on its way: a new one at once if there is news."""
        now = time.monotonic()
        report = self.core.report()
        text = json.dumps(report)
        if self.talking and text != self.sent:
            self._drop(self.talking)
            self.talking, self.talk_at = None, now
        elif text != self.sent and self.pause < 1:
            self.talk_at = min(self.talk_at, now)
        if self.talking is None and now >= self.talk_at and self.ending is None:
            self.seq += 1
            self.sent, self.sent_at = text, now
            self.talking = self._begin("talk", talk, self.url, {**report, "seq": self.seq})

    def _forget_message(self) -> None:
        """Empty the termination message that a program which was stopped may have written."""
        path = self.environ.get("TORCHELASTIC_ERROR_FILE", "")
        try:
            if path and self.core.ran and os.path.getsize(path):
                os.truncate(path, 0)
        except OSError:
            pass

    def _say(self, text: str) -> None:
        if text and text not in self.said:
            self.said.add(text)
            tell(text)

    def _end_all(self, besides: Collection[int] = ()) -> None:
        """Kill what is left, for at most 2 s: what is killed may have started something a moment before."""
        for _ in range(100):
            rest = descendants(os.getpid(), set(besides))
            if not rest:
                return
            for pid in rest:
                kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.02)


def carry_on(loop: Loop) -> int:
    """Wait for the program and do nothing else: the launcher has a fault, and the training shall not end with it."""
    core = loop.core
    if core.state == EXITED or core.swapping:  # half a tree never runs
        loop._end_all()
        return core.exit if core.state == EXITED else 1
    if not loop.program:
        loop.program = start_program(loop.argv, loop.environ, loop.cwd)
    for signum in ENDING:
        signal.signal(signum, lambda number, _: kill(loop.program, number))
    while loop.status is None:
        pid, status = os.waitpid(-1, 0)
        if pid == loop.program:
            loop.status = status
    loop._end_all()
    return exit_code(loop.status)


# ---------------------------------------------------------------------------------------------------------------------
# Warm start: a parent that has torch imported, and forks torchrun's agent, which forks the ranks


class Warm:
    """The launcher's end of the warm parent. `trouble` says why there is none (any more)."""

    def __init__(self, argv: list[str], workdir: str, nproc: str, environ: dict[str, str], now: float) -> None:
        self.trouble, self.fd, self.pid = "", -1, 0
        self.deadline = now + WARM_S
        self.ready = False
        self.data = b""
        found = as_python(argv, environ)
        if found is None:
            self._fail("only `torchrun script.py` and `torchrun -m module` start warm")
            return
        python, arguments = found
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        self.socket, self.fd = ours, ours.fileno()
        command = [python, "-u", os.path.abspath(__file__), "--warm-parent", str(theirs.fileno()), workdir, nproc]
        self.pid = start_program([*command, "--", *arguments], environ, os.getcwd())
        theirs.close()

    def is_settled(self, now: float) -> bool:
        if not self.ready and self.fd >= 0 and now >= self.deadline:
            self._fail(f"torch was not imported within {WARM_S} s")
        return self.ready or self.fd < 0

    def read(self) -> None:
        """Read the one message that comes unasked, or the end."""
        message = self._message()
        if message.get("ready"):
            self.ready, self.deadline = True, float("inf")
        else:
            self._fail(message.get("error", "it ended"))

    def start(self, environ: dict[str, str], cwd: str) -> int:
        """Fork torchrun's agent; 0 if that is not possible."""
        if not self.ready or self.fd < 0:
            return 0
        try:
            self.socket.settimeout(15)
            self.socket.sendall(json.dumps({"environ": environ, "cwd": cwd}).encode() + b"\n")
            message = self._message()
        except OSError as error:
            message = {"error": str(error)}
        if isinstance(message.get("pid"), int):
            return int(message["pid"])
        self._fail(message.get("error", "it ended"))
        return 0

    def _message(self) -> dict[str, Any]:
        try:
            while b"\n" not in self.data:
                chunk = self.socket.recv(65536)
                if not chunk:
                    return {}
                self.data += chunk
        except OSError as error:
            return {"error": str(error)}
        line, _, self.data = self.data.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        return message if isinstance(message, dict) else {"error": "it wrote what is none of its messages"}

    def _fail(self, why: str) -> None:
        self.trouble = f"no warm start, torchrun starts anew each time: {why}"
        self.ready, self.deadline = False, float("inf")
        if self.fd >= 0:
            self.socket.close()
            self.fd = -1
        if self.pid:
            kill(self.pid, signal.SIGKILL)


def as_python(argv: list[str], environ: dict[str, str]) -> tuple[str, list[str]] | None:
    """Return the interpreter that would run torchrun, and torchrun's arguments; None for any other command."""
    if argv[:2] == ["sh", "-c"] and len(argv) == 3:
        words = simple_words(argv[2])
        argv = words[1:] if words and words[0] == "exec" else words
    if not argv:
        return None
    program = which(argv[0], environ)
    if program and os.path.basename(argv[0]) == "torchrun":
        python = shebang(program, environ)
        return (python, argv[1:]) if python else None
    if program and os.path.basename(argv[0]).startswith("python") and argv[1:3] == ["-m", "torch.distributed.run"]:
        return program, argv[3:]
    return None


def simple_words(line: str) -> list[str]:
    """Split a shell line in which nothing has a meaning for the shell but spaces and quotes; else return nothing."""
    words: list[str] = []
    word: str | None = None
    at = 0
    while at < len(line):
        char = line[at]
        if char == " ":
            words += [word] if word is not None else []
            word = None
        elif char in "'\"":
            end = line.find(char, at + 1)
            part = line[at + 1 : end]
            if end < 0 or (char == '"' and any(special in part for special in "$`\\")):
                return []
            word, at = (word or "") + part, end
        elif char.isascii() and (char.isalnum() or char in "_./:=,@%+-"):
            word = (word or "") + char
        else:
            return []
        at += 1
    words += [word] if word is not None else []
    return [] if words and "=" in words[0] else words


def which(name: str, environ: dict[str, str]) -> str:
    for directory in [""] if "/" in name else environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    return ""


def shebang(script: str, environ: dict[str, str]) -> str:
    """Return the Python of a script's first line; empty if it is not that simple."""
    try:
        with open(script, "rb") as file:
            first = file.readline(512).decode("utf-8", "replace")
    except OSError:
        return ""
    words = first[2:].split() if first.startswith("#!") else []
    if words[:1] == ["/usr/bin/env"] and len(words) == 2:
        words = [which(words[1], environ)]
    return words[0] if len(words) == 1 and os.path.basename(words[0]).startswith("python") else ""


def warm_parent(fd: int, workdir: str, nproc: str, arguments: list[str]) -> None:
    """Import torch, then fork an agent for each request. It runs in torchrun's interpreter and the user's environment.

    It must not import anything of the user's, run a parallel operation of torch or touch CUDA: each would be inherited.
    """
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    requests = connection.makefile("rb")

    def send(message: dict[str, Any]) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")

    try:
        why = _import_torch(workdir, nproc, arguments)
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"
    send({"error": why} if why else {"ready": True})
    if why:
        os._exit(1)
    for line in requests:
        request = json.loads(line)
        middle = os.fork()
        if middle:
            os.waitpid(middle, 0)
            continue
        # A child of a child: once its parent has ended it belongs to the launcher, which waits for it as for any other.
        pid = os.fork()
        if pid:
            send({"pid": pid})
            os._exit(0)
        requests.close()
        connection.close()
        agent(arguments, request["environ"], request["cwd"])
    os._exit(0)


def _import_torch(workdir: str, nproc: str, arguments: list[str]) -> str:
    """Import what torchrun and its ranks import; return why that is not enough, if so."""
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
    if nproc != "1":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does; it is read at import
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # counting GPUs must not start CUDA
    import torch
    import torch._dynamo
    import torch.distributed.run
    import torch.nn.parallel
    import torch.optim
    from torch.distributed.elastic.multiprocessing.api import SubprocessHandler

    if not hasattr(SubprocessHandler, "_popen"):
        return f"torch {torch.__version__} starts ranks in a way that is not known here"
    args = torch.distributed.run.parse_args(arguments)
    if args.no_python or args.run_path or args.standalone or os.environ.get("PYTHON_EXEC"):
        return "only `torchrun script.py` and `torchrun -m module` start warm"
    if not str(args.nproc_per_node).isdigit():
        return f"--nproc-per-node is {args.nproc_per_node}; a number is needed, because counting would start CUDA"
    inside = os.path.realpath(workdir) + os.sep
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if os.path.isabs(file) and os.path.realpath(file).startswith(inside):
            return f"the import of torch imports {name} from the workspace"
    trial = os.fork()  # libraries that can be forked end their threads before
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    if len(os.listdir("/proc/self/task")) > 1:
        return "a library that is imported with torch has started threads"
    import gc

    gc.collect()
    gc.freeze()
    return ""


def agent(arguments: list[str], environ: dict[str, str], cwd: str) -> NoReturn:
    """Be torchrun, with ranks that are forked instead of started."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(cwd)
        sys.argv = ["torchrun", *arguments]
        import torch.distributed.run as torchrun
        from torch.distributed.elastic.multiprocessing.errors import record
        from torch.distributed.launcher.api import elastic_launch

        config, python, words = torchrun.config_from_args(torchrun.parse_args(arguments))
        fork_ranks(python)

        def main() -> None:
            elastic_launch(config, python)(*words)

        record(main)()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        flush()
        os._exit(code)  # the end of a process with torch takes another second


def fork_ranks(python: str) -> None:
    """Let torchrun fork the ranks that it would start as `python -u ...`; for the rest they are processes as any other.

    Functions as ranks, which torchrun forks by itself, are none to it if they end by `os._exit`.
    """
    from torch.distributed.elastic.multiprocessing.api import SubprocessHandler

    starts = SubprocessHandler._popen

    def popen(handler: Any, words: tuple[str, ...], environ: dict[str, str]) -> Any:
        if words[:2] == (python, "-u"):
            return Rank(words, environ, handler._stdout, handler._stderr)
        return starts(handler, words, environ)  # one that is bound to a part of the machine

    SubprocessHandler._popen = popen


class Rank:
    """A forked rank, with what torchrun uses of `subprocess.Popen`."""

    def __init__(self, words: tuple[str, ...], environ: dict[str, str], stdout: Any, stderr: Any) -> None:
        import warnings

        self.args = words
        self.returncode: int | None = None
        flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torchrun has threads, which hold nothing that a rank needs
            self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                _become_rank(environ, stdout, stderr)
                code = rank_main(list(words[2:]))
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        import subprocess

        until = float("inf") if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() >= until:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(0.02)
        return self.returncode or 0

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)


def _become_rank(environ: dict[str, str], stdout: Any, stderr: Any) -> None:
    """Undo what a fork shares with torchrun and a new process does not."""
    for signum in ENDING:  # torchrun's handlers
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    for file, fd in ((stdout, 1), (stderr, 2)):
        if file:
            os.dup2(file.fileno(), fd)
    os.environ.clear()
    os.environ.update(environ)


def rank_main(words: list[str]) -> int:
    """Be `python -u script.py ...` or `python -u -m module ...`, and return the exit code."""
    import importlib
    import random
    import runpy

    random.seed()
    torch = sys.modules["torch"]
    torch.default_generator.seed()  # not those of GPUs, which begin with one number in every process
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) != torch.get_num_threads():
        torch.set_num_threads(int(threads))
    importlib.invalidate_caches()
    code: Any = 0
    try:
        if words[0] == "-m":
            sys.path.insert(0, os.getcwd())
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))
            sys.argv = words
            _run_script(words[0])
    except SystemExit as error:
        code = error.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        shown = _of_the_user(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(shown), shown)
    _finish()
    return (code or 0) & 0xFF


def _finish() -> None:
    """Do what an interpreter does at its end, but for taking torch apart, which takes a second."""
    import atexit
    import gc
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # what joins threads at exit has no public name
    atexit._run_exitfuncs()
    for one in gc.get_objects():
        if issubclass(type(one), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            with contextlib.suppress(OSError, ValueError):  # of a file that was left open
                one.flush()
    flush()


def _run_script(script: str) -> None:
    """Run a script as the interpreter does: __file__ is absolute, sys.argv[0] is what was given."""
    import runpy
    import types

    if not script.endswith(".py"):  # a directory, or an archive
        runpy.run_path(script, run_name="__main__")
        return
    path = os.path.abspath(script) if sys.version_info >= (3, 9) else script
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__)
    exec(code, main.__dict__)


def _of_the_user(traceback: Any) -> Any:
    """Return a traceback without the frames that are not the user's program."""
    ours = (os.path.abspath(__file__), __file__, "<frozen runpy>")
    at = traceback
    while at and (at.tb_frame.f_code.co_filename in ours or at.tb_frame.f_globals.get("__name__") == "runpy"):
        at = at.tb_next
    return at or traceback


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


# ---------------------------------------------------------------------------------------------------------------------


def options(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Parse our own options, `--name value` or `--name=value`; the rest is the program's argv."""
    found: dict[str, str] = {}
    words = list(argv)
    while words and words[0] != "--":
        name, equals, value = words.pop(0).partition("=")
        if name in ("--warm", "--verbose"):
            value = "yes"
        elif not equals and words:
            value = words.pop(0)
        if name not in (
            "--companion",
            "--index",
            "--nodes",
            "--min",
            "--expected",
            "--nproc",
            "--workdir",
            "--warm",
            "--patience",
            "--verbose",
        ):
            raise ValueError(name)
        found[name[2:]] = value
    if len(words) < 2:
        raise ValueError("no program after --")
    return found, words[1:]


def note_down(workdir: str) -> None:
    """Have the tree recorded before the program makes anything; again if what does it was killed."""
    with contextlib.suppress(OSError):
        for _ in range(NOTE_TRIES):
            if "error" not in Task("note", note, workdir).wait():
                return


def number(text: str, default: int) -> int:
    return int(text) if text.isdigit() else default


def facts_of(given: dict[str, str], environ: dict[str, str]) -> dict[str, Any]:
    """Return the part of a report that never changes."""
    nodes = int(given["nodes"])
    return {
        "index": int(given["index"]),
        "incarnation": os.urandom(6).hex(),
        "started": time.time_ns() // 1_000_000,
        "attempt": number(environ.get("TORCHRUN_ATTEMPT", ""), 0),
        "nodes": nodes,
        "least": int(given.get("min", nodes)),
        "expected": number(given.get("expected", ""), 0),
        "address": environ.get("POD_IP") or socket.gethostname(),
        "port": number(environ.get("MASTER_PORT", ""), 29500),
        "budget": number(environ.get("PET_MAX_RESTARTS", ""), 0),
    }


def main(argv: list[str]) -> int:
    if argv[:1] == ["--warm-parent"]:
        warm_parent(int(argv[1]), argv[2], argv[3], argv[5:])
    try:
        given, program = options(argv)
        url, workdir = Url(given["companion"]), given["workdir"]
        facts = facts_of(given, dict(os.environ))
    except (KeyError, ValueError) as error:
        tell(f"wrong arguments: {error}")
        return 2
    now, wake = time.monotonic(), listen()
    reaper = become_subreaper()
    revision = placed_revision(workdir)
    warm = Warm(program, workdir, given.get("nproc", ""), dict(os.environ), now) if "warm" in given and reaper else None
    if revision:
        note_down(workdir)
    core = Core(facts, revision, now, warming=warm is not None, patience_s=number(given.get("patience", ""), START_S))
    loop = Loop(core, url, workdir, program, warm, wake)
    loop.verbose = "verbose" in given
    if not reaper:
        loop._say("it cannot find processes that lost their parent; they may stay when torchrun is killed")
    try:
        if not revision:
            loop._say(f"{workdir} has no {MARKER}, so new code cannot be taken up here")
            loop._do(loop.core._plain())
        return loop.run()
    except Exception as error:
        loop._say(f"it has a fault, so new code cannot be taken up any more: {error!r}")
        return carry_on(loop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
