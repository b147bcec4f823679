"""The programs of the control plane under test: which there are, and the pinned Go module each is built from."""

import hashlib
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["GROUPS", "PROGRAMS", "Program", "architecture", "cache_key", "go_version", "module_key", "version"]

_INSTALLED = Path(__file__).parent / "modules"  # the wheel carries hack/controlplane here
_CLONE = Path(__file__).parents[3] / "hack" / "controlplane"


@dataclass(frozen=True, slots=True)
class Program:
    """One command of a Go module; `module` is the directory that holds its go.mod."""

    name: str
    module: str
    package: str
    requires: str
    """The Go module whose version is the program's."""


_KUBERNETES = "k8s.io/kubernetes"
_ETCD = "go.etcd.io/etcd/server/v3"
_COREDNS = "github.com/coredns/coredns"

GROUPS: dict[str, tuple[str, ...]] = {
    "control-plane": ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    "node": ("kubelet", "kube-proxy", "coredns"),
}
"""What is needed together: a control plane, and a node with real containers."""

PROGRAMS: dict[str, Program] = {
    "etcd": Program("etcd", "etcd", _ETCD, _ETCD),
    "coredns": Program("coredns", "coredns", _COREDNS, _COREDNS),
    **{
        name: Program(name, "kubernetes", f"{_KUBERNETES}/cmd/{name}", _KUBERNETES)
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-proxy",
            "kube-scheduler",
            "kubectl",
            "kubelet",
        )
    },
}


@cache
def modules() -> Path:
    """The directory with the pinned Go modules: in the wheel, else in the clone.

    Raises FileNotFoundError when this is neither.
    """
    for directory in (_CLONE, _INSTALLED):
        if (directory / "kubernetes" / "go.mod").exists():
            return directory
    raise FileNotFoundError(f"the pinned Go modules are neither in {_CLONE} nor in {_INSTALLED}")


def version(program: Program) -> str:
    """The version that go.mod pins, e.g. `v1.36.3`."""
    pattern = rf"^(?:require)?\s+{re.escape(program.requires)} (v\S+)"
    return _find(pattern, modules() / program.module / "go.mod")


def go_version(program: Program) -> tuple[int, ...]:
    """The oldest Go that the program's module is built with, e.g. `(1, 26, 0)`."""
    found = _find(r"^go (\d+(?:\.\d+)+)$", modules() / program.module / "go.mod")
    return tuple(int(part) for part in found.split("."))


def linker_flags(program: Program) -> str:
    """No symbols, and the version: without it the server says v0.0.0-master and kubectl warns of skew."""
    if program.requires != _KUBERNETES:
        return "-s -w"
    full = version(program)
    major, minor, _ = full.removeprefix("v").split(".")
    stamps = {
        f"{package}.{name}": value
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in (("gitVersion", full), ("gitMajor", major), ("gitMinor", minor))
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in stamps.items())])


def architecture() -> str:
    """Go's name of this machine's architecture."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def cache_key(names: Sequence[str] = tuple(PROGRAMS)) -> str:
    """Names the cache directory: another version, pin or build flag is another directory."""
    digest = hashlib.sha256(architecture().encode())
    for name in sorted(names):
        digest.update(linker_flags(PROGRAMS[name]).encode())
    for module in sorted({PROGRAMS[name].module for name in names}):
        for file in ("go.mod", "go.sum"):
            digest.update((modules() / module / file).read_bytes())
    return f"{version(PROGRAMS['kube-apiserver'])}-{digest.hexdigest()[:12]}"


def module_key(program: Program) -> str:
    """As `cache_key`, of a program that has its module for itself."""
    digest = hashlib.sha256(f"{architecture()} {linker_flags(program)}".encode())
    for file in ("go.mod", "go.sum"):
        digest.update((modules() / program.module / file).read_bytes())
    return f"{program.name}-{version(program)}-{digest.hexdigest()[:12]}"


def _find(pattern: str, file: Path) -> str:
    if found := re.search(pattern, file.read_text(), re.MULTILINE):
        return found.group(1)
    raise ValueError(f"{file} has no line that matches {pattern}")
