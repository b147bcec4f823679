"""Writes a container image as an OCI archive, the format that containerd imports, without a container engine."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_image"]

_OCI = "application/vnd.oci.image"


def write_image(archive: Path, name: str, layer: Path, config: Mapping[str, Any], architecture: str) -> None:
    """Writes an image of one layer.

    Args:
        name: fully qualified, with a tag: `docker.io/local/trainer:1`.
        layer: an uncompressed tar of the root filesystem.
        config: the image's `config`: Cmd, Env, WorkingDir, User.
        architecture: as Go says it, e.g. amd64.
    """
    digest = _digest(layer)
    image = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, _blob(digest))
        layers = [{"mediaType": f"{_OCI}.layer.v1.tar", "digest": digest, "size": layer.stat().st_size}]
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _add(tar, f"{_OCI}.config.v1+json", image),
            "layers": layers,
        }
        entry = _add(tar, f"{_OCI}.manifest.v1+json", manifest)
        entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
        _write(tar, "index.json", {"schemaVersion": 2, "manifests": [entry]})
        _write(tar, "oci-layout", {"imageLayoutVersion": "1.0.0"})


def _add(tar: tarfile.TarFile, media_type: str, value: Any) -> dict[str, Any]:
    data = json.dumps(value, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    _write(tar, _blob(digest), value)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _write(tar: tarfile.TarFile, name: str, value: Any) -> None:
    data = json.dumps(value, sort_keys=True).encode()
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
