"""Says which files of a directory stay here when it is sent to a cluster, and why.

Patterns come from `.torchrunignore` at the top of the directory; without one, from the `.gitignore` files at every
depth and from `.dockerignore`. Besides, what nobody wants in a workspace is left out by default: `DEFAULTS`. A pattern
with `!` in `.torchrunignore` brings such a file back; one in the other files does not, because they were written for
other ends. As in git, nothing below a directory that is left out can be brought back.
"""

import fnmatch
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from pathspec import GitIgnoreSpec

from torchctl.client.errors import UsageError

__all__ = ["DEFAULTS", "OWN", "Rules"]

OWN = ".torchrunignore"
_GIT = ".gitignore"
_DOCKER = ".dockerignore"
_MAX_BYTES = 1 << 20

DEFAULTS: dict[str, tuple[str, ...]] = {
    "version control": (".git", ".hg", ".svn", ".jj"),
    "environment": (".venv", "venv", ".tox", ".nox", ".conda", "site-packages", "node_modules"),
    "cache": (
        *("__pycache__", "*.pyc", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"),
        *(".cache", ".eggs", ".gradle", ".terraform", ".DS_Store"),
    ),
    "run logs": ("wandb", "mlruns", "lightning_logs"),
    "checkpoint": ("*.ckpt", "*.pt", "*.pth", "*.safetensors", "*.distcp", "pytorch_model*.bin"),
    "secret": (
        *(".env", ".env.*", ".netrc", "_netrc", ".pypirc", ".git-credentials", ".htpasswd", "credentials.json"),
        *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
        *(".ssh", ".aws", ".azure", ".gnupg", ".kube", "kubeconfig", "*.kubeconfig"),
    ),
}
"""Names that are left out at any depth, by reason. A directory with `pyvenv.cfg` or `conda-meta` is an environment."""

_SAMPLES = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist"})
_REASONS = {name: why for why, names in DEFAULTS.items() for name in names}
_WILD = [name for name in _REASONS if "*" in name and not re.fullmatch(r"\*\.\w+", name)]
"""Patterns that need more than to look up a name, or its ending."""
_ANY_WILD = re.compile("|".join(f"({fnmatch.translate(name)})" for name in _WILD))
_SIGNS = ("pyvenv.cfg", "conda-meta")


@dataclass(frozen=True)
class _Layer:
    """The patterns of one file, for what is below `prefix`."""

    prefix: str
    spec: GitIgnoreSpec

    def says(self, path: str) -> bool | None:
        """True: left out; False: explicitly not; None: no pattern matches."""
        return self.spec.check_file(path.removeprefix(self.prefix)).include


@dataclass(frozen=True)
class Rules:
    """The rules that hold in one directory; `below` makes those of a directory in it."""

    own: _Layer | None = None
    git: tuple[_Layer, ...] = ()
    docker: _Layer | None = None

    @classmethod
    def of(cls, root: Path) -> "Rules":
        """Read the files with patterns at the top of a directory.

        Raises:
            UsageError: one of them cannot be read, or has a pattern that is none.
        """
        own = _layer(root, "", OWN)
        if own:
            return cls(own=own)
        git = _layer(root, "", _GIT)
        return cls(git=(git,) if git else (), docker=_layer(root, "", _DOCKER))

    def below(self, root: Path, path: str) -> "Rules":
        """Return the rules for what is in the directory `path`."""
        found = None if self.own else _layer(root / path, f"{path}/", _GIT)
        return replace(self, git=(*self.git, found)) if found else self

    def reason(self, path: str, *, directory: Path | None) -> str:
        """Return why something is left out; empty if it is sent.

        Args:
            path: below the root, with `/` between names.
            directory: where it is, if it is a directory.
        """
        matched = f"{path}/" if directory else path
        if self.own and (says := self.own.says(matched)) is not None:
            return OWN if says else ""
        if why := _default(path.rpartition("/")[2], directory):
            return why
        for layer in reversed(self.git):
            if (says := layer.says(matched)) is not None:
                if says:
                    return _GIT
                break
        return _DOCKER if self.docker and self.docker.says(matched) else ""


def _default(name: str, directory: Path | None) -> str:
    why = _named(name)
    if directory:
        return why or ("environment" if any(os.path.lexists(directory / sign) for sign in _SIGNS) else "")
    return "" if name in _SAMPLES or why in ("environment", "run logs") else why


def _named(name: str) -> str:
    """Return why a name is left out; by look-up where that is enough, because there are many names."""
    _, dot, ending = name.rpartition(".")
    why = _REASONS.get(name) or (dot and _REASONS.get(f"*.{ending}"))
    if why:
        return why
    wild = _ANY_WILD.match(name)
    return _REASONS[_WILD[wild.lastindex - 1]] if wild and wild.lastindex else ""


def _layer(directory: Path, prefix: str, name: str) -> _Layer | None:
    path = directory / name
    try:
        with path.open("rb") as file:
            lines = file.read(_MAX_BYTES).decode("utf-8-sig", "surrogateescape").splitlines()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"cannot read {prefix}{name}: {error.strerror}", "Make it readable") from None
    try:
        return _Layer(prefix, GitIgnoreSpec.from_lines(map(_anchored, lines) if name == _DOCKER else lines))
    except ValueError as error:
        raise UsageError(f"{prefix}{name} has a pattern that is none: {error}", "Correct it") from None


def _anchored(line: str) -> str:
    """Turn a line of .dockerignore, whose patterns all begin at the top, into one of .gitignore."""
    text = line.strip()
    if not text or text.startswith("#"):
        return ""
    bang, pattern = ("!", text[1:].strip()) if text.startswith("!") else ("", text)
    return f"{bang}/{os.path.normpath(pattern).lstrip('/')}" if pattern not in (".", "/") else ""
