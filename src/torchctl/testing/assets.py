"""Provides the control plane's programs: finds, downloads or builds each of them once.

Each is taken from the first source that has it: $TORCHCTL_ASSETS; the user's cache; the published release
downloads, if they answer within seconds; the pinned Go modules. `python -m torchctl.testing.assets` does so
ahead of time. The programs are of the newest Kubernetes unless $TORCHCTL_KUBERNETES_VERSION names an older pinned one.
"""

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from torchctl.testing.gobuild import build
from torchctl.testing.programs import GROUPS, Program, cache_key, programs_of
from torchctl.testing.releases import Unreachable, release_of

__all__ = ["Assets", "Settings", "ensure", "prepared"]

_KUBERNETES_URL = "https://dl.k8s.io/release"
_ETCD_URL = "https://github.com/etcd-io/etcd/releases/download"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The sources of programs. `from_environment` reads the settings from the variables named here."""

    cache: Path
    """$XDG_CACHE_HOME/torchctl, or ~/.cache/torchctl: 450 MB per version. Go's own caches take 9 GB more."""

    directory: Path | None = None
    """$TORCHCTL_ASSETS: a directory with programs, used first and trusted. It is not used for an older Kubernetes."""

    kubernetes: str = ""
    """$TORCHCTL_KUBERNETES_VERSION: a minor version that is pinned, such as 1.31. Empty: the newest."""

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
            kubernetes=environment.get("TORCHCTL_KUBERNETES_VERSION", ""),
            kubernetes_url=environment.get("TORCHCTL_ASSETS_URL", _KUBERNETES_URL),
            etcd_url=environment.get("TORCHCTL_ASSETS_ETCD_URL", _ETCD_URL),
        )


@dataclass(frozen=True, slots=True)
class Assets:
    """The path of each program."""

    paths: Mapping[str, Path]

    def path(self, name: str) -> Path:
        """Returns the path of a program. Raises KeyError if it was not requested."""
        return self.paths[name]


def ensure(names: Sequence[str] = GROUPS["control-plane"], settings: Settings | None = None) -> Assets:
    """Provides every named program, ready to run. Blocks for minutes if one must be built, which stderr shows.

    Several processes may call it at once: one works and the others wait for it.

    Raises:
        CorruptDownload: a downloaded file does not match its checksum.
        BuildFailed: Go is missing and cannot be installed, or the build failed.
        ValueError: the Kubernetes that the settings name is not pinned.
    """
    settings = settings or Settings.from_environment()
    known = programs_of(settings.kubernetes)
    return Assets(_prepared([known[name] for name in names], settings))


def prepared(program: Program, settings: Settings | None = None) -> Path:
    """Provides one program like `ensure`, which need not be one of the control plane's."""
    return _prepared([program], settings or Settings.from_environment())[program.name]


def _prepared(programs: Sequence[Program], settings: Settings) -> dict[str, Path]:
    missing = [program for program in programs if not _is_there(program, settings)]
    for key, together in groupby(sorted(missing, key=cache_key), key=cache_key):
        directory = settings.cache / "assets" / key
        directory.mkdir(parents=True, exist_ok=True)
        with _lock(directory / ".lock"):
            _obtain([program for program in together if not _is_there(program, settings)], directory, settings)
    return {program.name: _path(program, settings) for program in programs}


def _path(program: Program, settings: Settings) -> Path:
    """Returns the path where the program is or will be."""
    if settings.directory and not program.is_older:
        given = settings.directory / program.name
        if os.access(given, os.X_OK):
            return given
    return settings.cache / "assets" / cache_key(program) / program.name


def _is_there(program: Program, settings: Settings) -> bool:
    return os.access(_path(program, settings), os.X_OK)


def _obtain(programs: Sequence[Program], directory: Path, settings: Settings) -> None:
    unreachable: set[str] = set()
    for program in programs:
        target = directory / program.name
        release = release_of(program, settings.kubernetes_url, settings.etcd_url)
        if release and program.module not in unreachable:
            try:
                release.fetch(target, _Progress())
                continue
            except Unreachable as error:
                unreachable.add(program.module)
                _say(f"no release downloads here, building from source instead ({error})")
        build(program, target, settings.cache, _Progress(every_s=0))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds a lock between processes, which the kernel releases however the holder ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another process is preparing the control plane's programs in {path.parent}: waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class _Progress:
    """Prints progress: the first message at once, later ones at a limited rate."""

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
