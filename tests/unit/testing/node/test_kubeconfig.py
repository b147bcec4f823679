"""A kubeconfig that can be carried into a node."""

import base64
import json
from pathlib import Path

from torchctl.testing.node.kubeconfig import portable


def test_files_are_embedded_and_the_loopback_becomes_the_hosts_address(tmp_path: Path) -> None:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(name)
    config = {
        "clusters": [
            {"cluster": {"server": "https://127.0.0.1:6443", "certificate-authority": str(tmp_path / "ca")}},
        ],
        "users": [{"user": {"client-certificate": str(tmp_path / "crt"), "client-key": str(tmp_path / "key")}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    moved = json.loads(portable(path, "198.18.0.1"))
    cluster, user = moved["clusters"][0]["cluster"], moved["users"][0]["user"]
    assert cluster == {"server": "https://198.18.0.1:6443", "certificate-authority-data": encoded("ca")}
    assert user == {"client-certificate-data": encoded("crt"), "client-key-data": encoded("key")}


def test_a_token_stays_a_token(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({"clusters": [], "users": [{"user": {"token": "t"}}]}))
    assert json.loads(portable(path, "198.18.0.1"))["users"] == [{"user": {"token": "t"}}]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
