"""The pool of volumes."""

import json
from pathlib import Path

from torchctl.testing.node.volumes import STORAGE_CLASS, make_pool


def test_each_volume_has_its_own_directory_on_the_node(tmp_path: Path) -> None:
    storage_class, *volumes = json.loads(make_pool("node", tmp_path, Path("/run/node/volumes"), 2, "1Gi"))["items"]
    assert storage_class["metadata"]["name"] == STORAGE_CLASS
    assert [volume["spec"]["local"]["path"] for volume in volumes] == [
        "/run/node/volumes/node-0",
        "/run/node/volumes/node-1",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node-0", "node-1"]
    assert all("ReadWriteMany" in volume["spec"]["accessModes"] for volume in volumes)
