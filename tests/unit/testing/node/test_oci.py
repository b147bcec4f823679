"""A second image in an OCI archive."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from torchctl.testing.node.oci import Image, add_image

TRAINER = Image(
    name="docker.io/local/trainer:1",
    files={"usr/local/bin/run": b"#!/bin/sh\n"},
    links={"usr/local/bin/python": "/usr/bin/python3"},
    config={"Cmd": ["sleep", "infinity"]},
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with one image of two layers, and TRAINER added."""
    source = tmp_path / "one.tar"
    blobs = [b"base layer", b"upper layer"]
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": [sha256(blob) for blob in blobs]}}
    manifest = {"config": descriptor(dump(config)), "layers": [descriptor(blob) for blob in blobs]}
    with tarfile.open(source, "w") as tar:
        for blob in (*blobs, dump(config), dump(manifest)):
            add(tar, f"blobs/sha256/{sha256(blob)[7:]}", blob)
        add(tar, "index.json", dump({"manifests": [descriptor(dump(manifest))]}))
    add_image(source, tmp_path / "two.tar", TRAINER)
    return tmp_path / "two.tar"


def test_both_images_are_in_the_index(archive: Path) -> None:
    first, second = read(archive, "index.json")["manifests"]
    assert "annotations" not in first
    assert second["annotations"]["io.containerd.image.name"] == "docker.io/local/trainer:1"


def test_the_new_image_is_the_base_and_its_own_layer(archive: Path) -> None:
    manifest = blob(archive, read(archive, "index.json")["manifests"][1])
    config = blob(archive, manifest["config"])
    assert [layer["digest"] for layer in manifest["layers"]] == config["rootfs"]["diff_ids"]
    assert manifest["layers"][0] == descriptor(b"base layer") | {"mediaType": "layer"}
    assert config["config"] == {"Cmd": ["sleep", "infinity"]}


def test_the_new_layer_has_programs_and_links(archive: Path) -> None:
    layer = blob(archive, read(archive, "index.json")["manifests"][1])["layers"][1]
    with tarfile.open(archive) as tar, tarfile.open(fileobj=tar.extractfile(path(layer))) as files:
        program, link = files.getmember("usr/local/bin/run"), files.getmember("usr/local/bin/python")
        assert program.mode == 0o755
        assert link.linkname == "/usr/bin/python3"


def test_each_blob_matches_its_digest_and_one_index_exists(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        for name in names:
            content = tar.extractfile(name)
            assert content is not None
            if name.startswith("blobs/"):
                assert name == f"blobs/sha256/{hashlib.sha256(content.read()).hexdigest()}"
    assert names.count("index.json") == 1


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def descriptor(data: bytes) -> dict[str, Any]:
    return {"mediaType": "layer", "digest": sha256(data), "size": len(data)}


def path(entry: dict[str, Any]) -> str:
    return f"blobs/{entry['digest'].replace(':', '/')}"


def read(archive: Path, name: str) -> Any:
    with tarfile.open(archive) as tar:
        content = tar.extractfile(name)
        assert content is not None
        return json.load(content)


def blob(archive: Path, entry: dict[str, Any]) -> Any:
    return read(archive, path(entry))
