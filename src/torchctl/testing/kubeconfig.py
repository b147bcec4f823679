"""Kubeconfig files, as kubectl and the operator read them."""

import json
from pathlib import Path
from typing import Any

__all__ = ["write_kubeconfig"]


def write_kubeconfig(path: Path, *, server: str, ca: Path, user: dict[str, Any], namespace: str = "default") -> Path:
    """Writes a file with one context and returns its path.

    Args:
        path: the file to write; readable by the owner only.
        server: the API server's URL.
        ca: the authority to trust, PEM.
        user: the entry under `users`, in the file's own format, e.g. `{"token": "..."}`.
        namespace: the default namespace.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "torchctl", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": "torchctl", "user": user}],
        "contexts": [
            {"name": "torchctl", "context": {"cluster": "torchctl", "user": "torchctl", "namespace": namespace}}
        ],
        "current-context": "torchctl",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2))  # JSON is YAML
    return path
