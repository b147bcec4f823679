"""Adds a second image to an OCI archive, on the first one's base layer, which is then loaded once."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Image", "add_image"]

_OCI = "application/vnd.oci.image"
_INDEX = "index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image to make: the lowest layer of another image, plus files and a configuration."""

    name: str
    """Fully qualified, with a tag: `docker.io/local/trainer:1`."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """Programs on top of the base, by path; with the mode 0755."""

    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links on top of the base, by path."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """Cmd, Env, WorkingDir, User."""


def add_image(source: Path, target: Path, image: Image) -> None:
    """Copies `source` (an OCI archive with one image) to `target` and adds `image`, based on that image."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        blobs = _Blobs(new)
        for member in old:
            if member.name != _INDEX:
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
        index = _read(old, _INDEX)
        base = _read(old, _path(index["manifests"][0]["digest"]))
        parent = _read(old, _path(base["config"]["digest"]))
        layer = blobs.add(f"{_OCI}.layer.v1.tar", _layer(image))
        config = {
            "architecture": parent["architecture"],
            "os": parent["os"],
            "config": dict(image.config),
            "rootfs": {"type": "layers", "diff_ids": [parent["rootfs"]["diff_ids"][0], layer["digest"]]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": blobs.add_json(f"{_OCI}.config.v1+json", config),
            "layers": [base["layers"][0], layer],
        }
        entry = blobs.add_json(f"{_OCI}.manifest.v1+json", manifest)
        entry["annotations"] = {"io.containerd.image.name": image.name}
        index["manifests"].append(entry)
        blobs.write(_INDEX, json.dumps(index).encode())


class _Blobs:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def add(self, media_type: str, data: bytes) -> dict[str, Any]:
        """Writes a blob and returns its descriptor."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.write(_path(digest), data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def add_json(self, media_type: str, value: Mapping[str, Any]) -> dict[str, Any]:
        return self.add(media_type, json.dumps(value, sort_keys=True).encode())

    def write(self, name: str, data: bytes, mode: int = 0o644) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), mode
        self._tar.addfile(info, io.BytesIO(data))


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in sorted(image.files.items()):
            _Blobs(tar).write(name, data, mode=0o755)
        for name, destination in sorted(image.links.items()):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, destination
            tar.addfile(link)
    return buffer.getvalue()


def _read(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    content = tar.extractfile(name)
    assert content is not None
    value: dict[str, Any] = json.load(content)
    return value


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
