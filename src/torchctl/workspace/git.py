"""Fetches one commit from a git server: init, resolve, shallow fetch, and `git archive` into our own unpacker.

No checkout: the tree comes as a tar stream through the same rules as every other source, so there is no index, no
filter, no hook and no submodule that could run or fetch something.
"""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.abc

from . import gitcommand
from .core import Guard, Limits, Member
from .errors import Refused, Unreachable, WorkspaceError
from .gitcommand import GitSource, NotAdvertised
from .secret import Secret
from .tarstream import TarParser
from .unpack import Unpacker

__all__ = ["fetch_git"]

_TRIES = 4
_MAX_ANSWER = 4 * 2**20


async def fetch_git(
    source: GitSource, target: Path, scratch: Path, *, secret: Secret, limits: Limits, environ: Mapping[str, str]
) -> str:
    """Put the tree of a ref into `target` (empty); `scratch` holds the repository meanwhile.

    Returns:
        The full commit id.

    Raises:
        Refused: URL, ref, credentials or content are not acceptable; the message says which.
        Unreachable: the server failed after a few tries.
    """
    split = source.check()
    if split.scheme == "ssh" and not (secret.known_hosts and secret.ssh_privatekey):
        raise Refused(
            "ssh needs a Secret with ssh-privatekey and known_hosts",
            next_step="Create one and name it in volumes.workspace.secretRef",
        )
    with _keys(secret) as ssh:
        env = gitcommand.environment(split, environ, home=scratch, basic=secret.basic(), ca=secret.ca, ssh=ssh)
        repository = _Repository(source, scratch / "repository", env, secret)
        await repository.init()
        commit = await repository.fetch()
        await repository.unpack(commit, target, limits)
    return commit


class _Repository:
    """A scratch repository and the git commands that run in it."""

    def __init__(self, source: GitSource, path: Path, env: Mapping[str, str], secret: Secret) -> None:
        self._source = source
        self._path = path
        self._env = env
        self._redact = secret.redactor()

    async def init(self) -> None:
        await self._run("init", "--quiet", "--bare", "--template=", "--", str(self._path), inside=False)
        info = self._path / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(gitcommand.ATTRIBUTES, encoding="ascii")

    async def fetch(self) -> str:
        """Fetch the ref and return its commit; retry a few times if the server cannot be reached."""
        for attempt in range(1, _TRIES):
            try:
                return await self._fetch()
            except Unreachable:
                await anyio.sleep(2**attempt / 2)
        return await self._fetch()

    async def _fetch(self) -> str:
        ref, url = self._source.ref, self._source.url
        if gitcommand.is_commit(ref):
            await self._fetch_commit(url, ref)
            return ref
        listing = await self._run("ls-remote", "--quiet", "--", url, *gitcommand.ref_patterns(ref))
        chosen = gitcommand.choose_ref(ref, listing)
        if chosen is None:
            raise Refused(
                f"there is no branch or tag {ref!r} in {self._shown_url}" if ref else f"{self._shown_url} is empty",
                next_step="Check volumes.workspace.ref" if ref else "Push a commit first",
            )
        await self._run("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", url, chosen)
        return (await self._run("rev-parse", "--verify", "--end-of-options", "FETCH_HEAD^{commit}")).strip()

    async def _fetch_commit(self, url: str, commit: str) -> None:
        fetch = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
        try:
            await self._run(*fetch, "--depth=1", "--", url, commit)
        except NotAdvertised:
            await self._run(*fetch, "--", url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            try:
                await self._run("cat-file", "-e", f"{commit}^{{commit}}")
            except WorkspaceError:
                raise Refused(
                    f"there is no commit {commit} on a branch or tag of {self._shown_url}",
                    next_step="Push it, or check volumes.workspace.ref",
                ) from None

    async def unpack(self, commit: str, target: Path, limits: Limits) -> None:
        parser = TarParser(limits)
        with Unpacker(target, Guard(limits)) as unpacker:
            async with self._process("archive", "--format=tar", commit, errors=subprocess.DEVNULL) as process:
                assert process.stdout is not None
                async for data in process.stdout:
                    for event in parser.feed(data):
                        if isinstance(event, Member):
                            unpacker.add(event)
                        else:
                            unpacker.write(event)
                await process.wait()
            unpacker.close()
        if not parser.ended:
            raise Refused(f"git could not give the tree of {commit}")

    @property
    def _shown_url(self) -> str:
        return self._redact(self._source.url)

    async def _run(self, *arguments: str, inside: bool = True) -> str:
        """Run git to its end and return what it printed."""
        async with self._process(*arguments, inside=inside) as process, anyio.create_task_group() as tasks:
            errors = bytearray()
            tasks.start_soon(_collect, process.stderr, errors)
            output = bytearray()
            await _collect(process.stdout, output)
            code = await process.wait()
        if code != 0:
            raise self._error(errors)
        return output.decode("utf-8", "replace")

    def _error(self, errors: bytes | bytearray) -> WorkspaceError:
        shown = self._shown_url + (f" at {self._source.ref!r}" if self._source.ref else "")
        return gitcommand.explain(self._redact(errors.decode("utf-8", "replace")), self._source.url, shown)

    @asynccontextmanager
    async def _process(
        self, *arguments: str, inside: bool = True, errors: int = subprocess.PIPE
    ) -> AsyncIterator[anyio.abc.Process]:
        """Run git in its own process group. Leaving the block early kills it with its helpers (ssh, remote-https)."""
        where = [f"--git-dir={self._path}"] if inside else []
        try:
            process = await anyio.open_process(
                ["git", *where, *arguments],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                env=self._env,
                cwd=self._path.parent,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Refused("git is not installed here", next_step="Use the image of torchctl") from None
        try:
            yield process
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):  # it ended this very moment
                    os.killpg(process.pid, 9)
            with anyio.CancelScope(shield=True):
                await process.aclose()


async def _collect(stream: anyio.abc.ByteReceiveStream | None, into: bytearray) -> None:
    """Read a pipe to its end, but keep only a limited beginning."""
    assert stream is not None
    async for data in stream:
        into += data[: _MAX_ANSWER - len(into)]


@contextmanager
def _keys(secret: Secret) -> Iterator[str]:
    """Yield the ssh command, with the key in a private in-memory file until the block ends.

    ssh refuses a key file as a Secret mounts it (readable by the group), and one without a final newline.
    """
    memory = "/dev/shm"  # writable in a container with a read-only root; else the temporary directory
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        known_hosts, key = Path(directory, "known_hosts"), Path(directory, "key")
        known_hosts.write_text(secret.known_hosts, encoding="utf-8")
        if secret.ssh_privatekey:
            key.touch(0o600)
            key.write_text(secret.ssh_privatekey.replace("\r\n", "\n").rstrip("\n") + "\n", encoding="utf-8")
        yield gitcommand.ssh_command(key if secret.ssh_privatekey else None, known_hosts)
