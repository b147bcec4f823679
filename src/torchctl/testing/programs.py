"""The programs of the control plane under test, each with the pinned Go module that it is built from."""

import hashlib
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

__all__ = [
    "GROUPS",
    "PROGRAMS",
    "Program",
    "architecture",
    "cache_key",
    "go_version",
    "kubernetes_modules",
    "minor_numbers",
    "programs_of",
    "version",
]

_INSTALLED = Path(__file__).parent / "modules"  # the wheel carries hack/controlplane here
_CLONE = Path(__file__).parents[3] / "hack" / "controlplane"


@dataclass(frozen=True, slots=True)
class Program:
    """One command of a Go module; `module` is the directory that holds its go.mod."""

    name: str
    module: str
    package: str
    requires: str
    """The Go module whose version is that of the program."""

    @property
    def is_kubernetes(self) -> bool:
        return self.requires == _KUBERNETES

    @property
    def is_older(self) -> bool:
        """True if the program is of a Kubernetes that is not the newest pinned one."""
        return self.is_kubernetes and self.module != _NEWEST


_KUBERNETES = "k8s.io/kubernetes"
_NEWEST = "kubernetes"
_ETCD = "go.etcd.io/etcd/server/v3"
_COREDNS = "github.com/coredns/coredns"

GROUPS: dict[str, tuple[str, ...]] = {
    "control-plane": ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    "node": ("kubelet", "kube-proxy", "coredns"),
}
"""Programs that are needed together: for a control plane, and for a node with real containers."""

PROGRAMS: dict[str, Program] = {
    "etcd": Program("etcd", "etcd", _ETCD, _ETCD),
    "coredns": Program("coredns", "coredns", _COREDNS, _COREDNS),
    **{
        name: Program(name, _NEWEST, f"{_KUBERNETES}/cmd/{name}", _KUBERNETES)
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
"""The programs for the newest Kubernetes, by name."""

_OLDER = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Programs that an older Kubernetes' module builds. etcd and kubectl are always the newest ones."""


@cache
def modules() -> Path:
    """Returns the directory with the pinned Go modules: in the wheel, else in the clone.

    Raises FileNotFoundError if neither has it.
    """
    for directory in (_CLONE, _INSTALLED):
        if (directory / _NEWEST / "go.mod").exists():
            return directory
    raise FileNotFoundError(f"the pinned Go modules are neither in {_CLONE} nor in {_INSTALLED}")


def kubernetes_modules() -> dict[str, str]:
    """Returns the pinned modules of Kubernetes by minor version, oldest first: `{"1.31": "kubernetes-1.31", ...}`."""
    found = [path.parent.name for path in modules().glob(f"{_NEWEST}*/go.mod")]
    minors = {_minor(replace(PROGRAMS["kube-apiserver"], module=module)): module for module in found}
    return {minor: minors[minor] for minor in sorted(minors, key=minor_numbers)}


def minor_numbers(minor: str) -> tuple[int, ...]:
    """Returns a minor version as comparable numbers: `1.31` is `(1, 31)`."""
    return tuple(int(part) for part in minor.split("."))


def programs_of(kubernetes: str = "") -> Mapping[str, Program]:
    """Returns all programs by name, for a minor version of Kubernetes such as `1.31`; empty is the newest.

    Raises ValueError for a version that is not pinned.
    """
    known = kubernetes_modules() if kubernetes else {"": _NEWEST}
    if (module := known.get(kubernetes)) is None:
        raise ValueError(f"Kubernetes {kubernetes} is not pinned in {modules()}: choose one of {', '.join(known)}")
    if module == _NEWEST:
        return PROGRAMS
    return PROGRAMS | {name: replace(PROGRAMS[name], module=module) for name in _OLDER}


def version(program: Program) -> str:
    """Returns the version that go.mod pins, e.g. `v1.36.3`."""
    pattern = rf"^(?:require)?\s+{re.escape(program.requires)} (v\S+)"
    return _find(pattern, modules() / program.module / "go.mod")


def go_version(program: Program) -> tuple[int, ...]:
    """Returns the oldest Go that can build the program's module, e.g. `(1, 26, 0)`."""
    found = _find(r"^go (\d+(?:\.\d+)+)$", modules() / program.module / "go.mod")
    return tuple(int(part) for part in found.split("."))


def linker_flags(program: Program) -> str:
    """Returns linker flags that drop symbols and set the version, without which kubectl warns of version skew."""
    if not program.is_kubernetes:
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
    """Returns Go's name of this machine's architecture."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def cache_key(program: Program) -> str:
    """Returns the name of the program's cache directory, which depends on its version, pin and build flags.

    The programs for the newest Kubernetes share one directory; any other module has its own.
    """
    if program == PROGRAMS.get(program.name):
        return f"{version(PROGRAMS['kube-apiserver'])}-{_digest(*PROGRAMS.values())}"
    return f"{program.module}-{version(program)}-{_digest(program)}"


def _digest(*programs: Program) -> str:
    digest = hashlib.sha256(architecture().encode())
    for program in sorted(programs, key=lambda program: program.name):
        digest.update(linker_flags(program).encode())
    for module in sorted({program.module for program in programs}):
        for file in ("go.mod", "go.sum"):
            digest.update((modules() / module / file).read_bytes())
    return digest.hexdigest()[:12]


def _minor(program: Program) -> str:
    return ".".join(version(program).removeprefix("v").split(".")[:2])


def _find(pattern: str, file: Path) -> str:
    if found := re.search(pattern, file.read_text(), re.MULTILINE):
        return found.group(1)
    raise ValueError(f"{file} has no line that matches {pattern}")
