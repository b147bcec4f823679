"""Makes kubeconfigs portable: without file paths, and with an address that works elsewhere."""

import base64
import json
from pathlib import Path

__all__ = ["portable"]

_FILES = ("certificate-authority", "client-certificate", "client-key")


def portable(path: Path, host: str) -> str:
    """Returns the kubeconfig at `path` with embedded files, and with loopback servers moved to `host`."""
    config = json.loads(path.read_text())
    for entry in config["clusters"]:
        entry["cluster"]["server"] = entry["cluster"]["server"].replace("127.0.0.1", host)
        _embed(entry["cluster"])
    for entry in config["users"]:
        _embed(entry["user"])
    return json.dumps(config, indent=2)


def _embed(fields: dict[str, str]) -> None:
    for name in _FILES:
        if name in fields:
            fields[f"{name}-data"] = base64.b64encode(Path(fields.pop(name)).read_bytes()).decode()
