"""The operator's image without a docker engine: an OCI image layout as one tar, for `ctr images import` and its like.

    python hack/image.py --output torchctl.tar --name docker.io/local/torchctl:dev

Three layers, each a tar with sorted names and fixed times, so that the same inputs give the same bytes: a Debian root
file system (debootstrap; needs root and, once, the network), the pinned dependencies (pip; once for each lock), and
torchctl itself. The first two are kept in the cache, keyed by what they are made from.
"""

import argparse
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["build", "main"]

REPOSITORY = Path(__file__).resolve().parent.parent
SUITE, PYTHON = "bookworm", "3.11"
PACKAGES = ("ca-certificates", "git", "openssh-client", "python3")
RECIPE = "1"  # another value makes the cached layers again
USER = 65532
EPOCH = 1_700_000_000
SITE = f"opt/torchctl/lib/python{PYTHON}/site-packages"
CREATED = "2023-11-14T22:13:20Z"

# What debootstrap leaves that a container does not need, or that differs from machine to machine.
REMOVED = (
    "dev", "proc", "sys", "run", "tmp", "var/tmp", "var/log", "var/cache", "var/lib/apt/lists", "debootstrap",
    "usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian",
    "etc/resolv.conf", "etc/hostname", "etc/machine-id", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-",
    "var/lib/dpkg/status-old", "var/lib/dpkg/lock", "var/lib/dpkg/lock-frontend",
)  # fmt: skip
EMPTIED = ("dev", "proc", "sys", "run", "tmp", "var/tmp", "var/log", "var/cache")


@dataclass(frozen=True)
class Layer:
    """A layer as a file; an uncompressed layer's digest is also its diff id."""

    path: Path

    @property
    def digest(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def build(output: Path, cache: Path, name: str) -> Path:
    """Write the image `name` (fully qualified, such as docker.io/local/torchctl:dev) as an OCI layout tar.

    Args:
        output: the file to write; its directory exists.
        cache: a directory outside of the clone; safe for several processes at once.

    Returns:
        `output`.
    """
    cache.mkdir(parents=True, exist_ok=True)
    root, base = _base(cache)
    dependencies = _dependencies(cache, root)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        own = Path(scratch, "torchctl.tar")
        _write_layer(own, _torchctl_tree(Path(scratch), root))
        _write_image(output, name, [base, dependencies, Layer(own)])
    return output


def _base(cache: Path) -> tuple[Path, Layer]:
    """The unpacked Debian root and its layer."""
    key = _key("base", RECIPE, SUITE, _architecture(), *PACKAGES)
    root, layer = cache / f"base-{key}", cache / f"base-{key}.tar"

    def make() -> None:
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            new = Path(scratch, "root")
            include = f"--include={','.join(PACKAGES)}"
            mirror = filter(None, [os.environ.get("TORCHCTL_DEBIAN_MIRROR")])  # else debootstrap's own
            _run("debootstrap", "--variant=minbase", include, SUITE, str(new), *mirror)
            _slim(new)
            _compile(new, new / f"usr/lib/python{PYTHON}", f"/usr/lib/python{PYTHON}")
            _write_layer(Path(scratch, "layer.tar"), new)
            shutil.rmtree(root, ignore_errors=True)
            new.rename(root)
            Path(scratch, "layer.tar").rename(layer)

    _once(cache, layer, make)
    return root, Layer(layer)


def _dependencies(cache: Path, root: Path) -> Layer:
    """The packages that torchctl needs, with the versions and hashes of the lock."""
    lock = (REPOSITORY / "requirements-dev.txt").read_text(encoding="utf-8")
    pins = "\n".join(_pins(lock)) + "\n"
    layer = cache / f"dependencies-{_key('dependencies', RECIPE, PYTHON, _architecture(), pins)}.tar"

    def make() -> None:
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            requirements, tree = Path(scratch, "requirements.txt"), Path(scratch, "tree")
            requirements.write_text(pins, encoding="utf-8")
            platforms = [f"--platform=manylinux_{glibc}_{_architecture()}" for glibc in ("2_36", "2_28", "2_17")]
            _run(
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--no-compile"),
                *("--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}", *platforms),
                *(
                    f"--platform=manylinux2014_{_architecture()}",
                    f"--target={tree / SITE}",
                    f"--requirement={requirements}",
                ),
            )
            shutil.rmtree(tree / SITE / "bin", ignore_errors=True)
            _compile(root, tree / SITE, f"/{SITE}")
            _write_layer(Path(scratch, "layer.tar"), tree)
            Path(scratch, "layer.tar").rename(layer)

    _once(cache, layer, make)
    return Layer(layer)


def _pins(lock: str) -> list[str]:
    """The lock's entries for torchctl's dependencies and theirs."""
    entries = {}
    for match in re.finditer(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==[^\\\n]*(?:\\\n[^\\\n]*)*", lock, re.MULTILINE):
        entries[canonicalize_name(match[1])] = match[0]
    wanted, todo = set(), [("torchctl", "")]
    while todo:
        package, extra = todo.pop()
        for text in _requires(package):
            requirement = Requirement(text)
            environment = {"extra": extra, "python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
            name = canonicalize_name(requirement.name)
            if requirement.marker and not requirement.marker.evaluate(environment):
                continue
            todo += [(name, e) for e in ("", *requirement.extras) if (name, e) not in wanted]
            wanted |= {(name, e) for e in ("", *requirement.extras)}
    return [entries[name] for name in sorted({name for name, _ in wanted})]


def _requires(package: str) -> list[str]:
    try:
        return requires(package) or []
    except PackageNotFoundError:
        return []


def _torchctl_tree(scratch: Path, root: Path) -> Path:
    """torchctl's own layer: the package, its metadata, and a virtual environment around both."""
    tree = scratch / "tree"
    site = tree / SITE
    isolation = ["--no-build-isolation"] if find_spec("hatchling") else []  # the lock has it: no network
    _run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        *isolation,
        f"--wheel-dir={scratch}",
        str(REPOSITORY),
    )
    with _only_wheel(scratch) as found:
        _run(sys.executable, "-m", "zipfile", "-e", str(found), str(site))
    environment = site.parent.parent.parent
    environment.joinpath("pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n", encoding="ascii"
    )
    binaries = environment / "bin"
    binaries.mkdir()
    binaries.joinpath("python").symlink_to("/usr/bin/python3")
    program = binaries / "torchctl"
    program.write_text("#!/opt/torchctl/bin/python -P\nfrom torchctl.cli.app import main\n\nmain()\n", encoding="ascii")
    program.chmod(0o755)
    _compile(root, site, f"/{SITE}")
    return tree


@contextmanager
def _only_wheel(directory: Path) -> Iterator[Path]:
    (wheel,) = directory.glob("torchctl-*.whl")
    yield wheel


def _slim(root: Path) -> None:
    for name in REMOVED:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name in EMPTIED:
        (root / name).mkdir(mode=0o755)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    with (root / "etc/passwd").open("a", encoding="ascii") as file:  # ssh refuses to run for a user without a name
        file.write(f"torchctl:x:{USER}:{USER}:torchctl:/tmp:/usr/sbin/nologin\n")
    with (root / "etc/group").open("a", encoding="ascii") as file:
        file.write(f"torchctl:x:{USER}:\n")


def _compile(root: Path, directory: Path, installed: str) -> None:
    """Bytecode that is trusted as it is (its sources' times are fixed anyway), made by the image's own Python."""
    (loader,) = root.glob("lib64/ld-linux-*.so.*")
    libraries = ":".join(str(path) for path in (*root.glob("lib/*-linux-gnu"), *root.glob("usr/lib/*-linux-gnu")))
    for stale in directory.rglob("__pycache__"):
        shutil.rmtree(stale)
    subprocess.run(
        [
            *(str(loader.resolve()), "--library-path", libraries, str(root / f"usr/bin/python{PYTHON}"), "-S"),
            *("-m", "compileall", "-q", "--invalidation-mode=unchecked-hash", "-s", str(directory), "-p", installed),
            *("-x", r"/(lib2to3|test|tests)/", str(directory)),
        ],
        env={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        check=True,
    )


def _write_layer(path: Path, tree: Path) -> None:
    """Write a tree as a tar whose bytes depend on names, modes and contents only."""
    links: dict[tuple[int, int], str] = {}
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for file in sorted(_below(tree)):
            info = _tar_info(file, file.relative_to(tree).as_posix(), links)
            if info is not None and info.isreg():
                with file.open("rb") as content:
                    tar.addfile(info, content)
            elif info is not None:
                tar.addfile(info)


def _below(directory: Path) -> Iterator[Path]:
    for entry in os.scandir(directory):
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path))


def _tar_info(file: Path, name: str, links: dict[tuple[int, int], str]) -> tarfile.TarInfo | None:
    status = file.lstat()
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), EPOCH
    info.uid, info.gid = status.st_uid, status.st_gid
    if name == "opt" or name.startswith("opt/"):  # made here, under whatever user and umask
        info.uid = info.gid = 0
        info.mode = 0o755 if status.st_mode & 0o100 else 0o644
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(file)
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    elif not stat.S_ISREG(status.st_mode):
        return None
    elif status.st_nlink > 1 and (status.st_dev, status.st_ino) in links:
        info.type, info.linkname = tarfile.LNKTYPE, links[status.st_dev, status.st_ino]
    else:
        links[status.st_dev, status.st_ino] = name
        info.size = status.st_size
    return info


def _write_image(output: Path, name: str, layers: list[Layer]) -> None:
    digests = [layer.digest for layer in layers]
    config = _json(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[_architecture()],
            "os": "linux",
            "created": CREATED,
            "config": {
                "User": f"{USER}:{USER}",
                "Entrypoint": ["/opt/torchctl/bin/torchctl"],
                "WorkingDir": "/",
                "Env": [
                    "PATH=/opt/torchctl/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "PYTHONDONTWRITEBYTECODE=1",
                    "PYTHONUNBUFFERED=1",
                    "LANG=C.UTF-8",
                    "HOME=/tmp",
                ],
                "Labels": {
                    "org.opencontainers.image.title": "torchctl",
                    "org.opencontainers.image.licenses": "Apache-2.0",
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    )
    layer_type = "application/vnd.oci.image.layer.v1.tar"
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", _digest(config), len(config)),
            "layers": [
                _descriptor(layer_type, digest, layer.path.stat().st_size)
                for digest, layer in zip(digests, layers, strict=True)
            ],
        }
    )
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", _digest(manifest), len(manifest))
    tag = name.rpartition(":")[2]
    entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    small = {_digest(config): config, _digest(manifest): manifest}
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    with tarfile.open(temporary, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json(index))
        for digest, data in sorted(small.items()):
            _add(tar, f"blobs/sha256/{digest}", data)
        for digest, layer in zip(digests, layers, strict=True):
            with layer.path.open("rb") as content:
                tar.addfile(_file_info(f"blobs/sha256/{digest}", layer.path.stat().st_size), content)
    temporary.replace(output)


def _file_info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, EPOCH, 0o644
    return info


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    tar.addfile(_file_info(name, len(data)), io.BytesIO(data))


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _key(*parts: str) -> str:
    return _digest(_json(parts))[:16]


def _architecture() -> str:
    return os.uname().machine


def _once(cache: Path, result: Path, make: Callable[[], None]) -> None:
    """Make what is not in the cache yet; a second process waits for the first."""
    with (cache / f"{result.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            make()


def _run(*command: str) -> None:
    print("+", " ".join(command), file=sys.stderr, flush=True)
    try:
        subprocess.run(command, check=True, stdout=sys.stderr)
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is not installed; on Debian: apt-get install {command[0]}") from None


def main() -> None:
    """The command line; see the module."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchctl" / "image"
    parser = argparse.ArgumentParser(description="Build the image of torchctl without a docker engine.")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=default)
    parser.add_argument("--name", default="docker.io/local/torchctl:dev")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    print(build(arguments.output, arguments.cache, arguments.name))


if __name__ == "__main__":
    main()
