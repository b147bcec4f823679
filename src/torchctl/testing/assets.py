"""The control plane's programs: found, or fetched, or built, once.

Each is taken from the first place that has it: $TORCHCTL_ASSETS; the user's cache; the published release
downloads, if they answer within seconds; the pinned Go modules. `python -m torchctl.testing.assets` does so
ahead of time.
"""

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchctl.testing.gobuild import build
from torchctl.testing.programs import GROUPS, PROGRAMS, Program, cache_key, module_key
from torchctl.testing.releases import Unreachable, release_of

__all__ = ["Assets", "Settings", "ensure", "prepared"]

_KUBERNETES_URL = "https://dl.k8s.io/release"
_ETCD_URL = "https://github.com/etcd-io/etcd/releases/download"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where programs come from. `from_environment` reads it from the variables named here."""

    cache: Path
    """$XDG_CACHE_HOME/torchctl, or ~/.cache/torchctl: 450 MB per version. Go's own caches take 9 GB more."""

    directory: Path | None = None
    """$TORCHCTL_ASSETS: a directory with programs, asked first and trusted."""

    kubernetes_url: str = _KUBERNETES_URL
    """$TORCHCTL_ASSETS_URL: a site laid out like dl.k8s.io/release. Empty: always build."""

    etcd_url: str = _ETCD_URL
    """$TORCHCTL_ASSETS_ETCD_URL: the same for etcd."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".cache"
        directory = environment.get("TORCHCTL_ASSETS")
        return cls(
            cache=Path(home) / "torchctl",
            directory=Path(directory) if directory else None,
            kubernetes_url=environment.get("TORCHCTL_ASSETS_URL", _KUBERNETES_URL),
            etcd_url=environment.get("TORCHCTL_ASSETS_ETCD_URL", _ETCD_URL),
        )


@dataclass(frozen=True, slots=True)
class Assets:
    """Where each program is."""

    paths: Mapping[str, Path]

    def path(self, name: str) -> Path:
        """Raises KeyError for a program that was not asked for."""
        return self.paths[name]


def ensure(names: Sequence[str] = GROUPS["control-plane"], settings: Settings | None = None) -> Assets:
    """Every named program, ready to run. Blocks: minutes when something has to be built, which stderr shows.

    Several processes may do this at once: one works and the others wait for it.

    Raises:
        CorruptDownload: a site offered a file that is not what its checksum says.
        BuildFailed: Go is missing and cannot be had, or the build failed.
    """
    settings = settings or Settings.from_environment()
    assets = settings.cache / "assets" / cache_key()
    found = _find(names, settings.directory, assets)
    if len(found) < len(names):
        assets.mkdir(parents=True, exist_ok=True)
        with _lock(assets / ".lock"):
            found = _find(names, settings.directory, assets)
            _obtain([name for name in names if name not in found], assets, settings)
        found = _find(names, settings.directory, assets)
    return Assets({name: found[name] for name in names})


def prepared(program: Program, settings: Settings | None = None) -> Path:
    """A program that is none of the control plane's: from $TORCHCTL_ASSETS, the user's cache, or its pinned Go module.

    Raises BuildFailed.
    """
    settings = settings or Settings.from_environment()
    directory = settings.cache / "assets" / module_key(program)
    found = _find([program.name], settings.directory, directory)
    if not found:
        directory.mkdir(parents=True, exist_ok=True)
        with _lock(directory / ".lock"):
            if not _find([program.name], directory):
                build(program, directory / program.name, settings.cache, _Progress(every_s=0))
    return found.get(program.name, directory / program.name)


def _find(names: Sequence[str], *directories: Path | None) -> dict[str, Path]:
    """The first directory that has a program wins."""
    found: dict[str, Path] = {}
    for directory in filter(None, directories):
        for name in names:
            if os.access(directory / name, os.X_OK):
                found.setdefault(name, directory / name)
    return found


def _obtain(names: Sequence[str], assets: Path, settings: Settings) -> None:
    unreachable: set[str] = set()
    for name in names:
        program = PROGRAMS[name]
        release = release_of(program, settings.kubernetes_url, settings.etcd_url)
        if release and program.module not in unreachable:
            try:
                release.fetch(assets / name, _Progress())
                continue
            except Unreachable as error:
                unreachable.add(program.module)
                _say(f"no release downloads here, building from source instead ({error})")
        build(program, assets / name, settings.cache, _Progress(every_s=0))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time, and let go by the kernel however that one ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another process is preparing the control plane's programs in {path.parent}: waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class _Progress:
    """Says something at once, and then not more often than every so many seconds."""

    every_s: float = 5.0
    _due: float = 0.0

    def __call__(self, message: str) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self.every_s
            _say(message)


def _say(message: str) -> None:
    print(f"torchctl: {message}", file=sys.stderr, flush=True)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torchctl.testing.assets", description=__doc__)
    parser.add_argument("--group", choices=GROUPS, default="control-plane", help="what is needed together")
    group: str = parser.parse_args().group
    for name, path in ensure(GROUPS[group]).paths.items():
        print(f"{name}\t{path}")


if __name__ == "__main__":
    _main()
