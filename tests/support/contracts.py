"""Holds what the operator writes and reads of another project's kinds against that project's own CRDs."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from torchctl.api.casing import camel
from torchctl.runtime.kinds import Kind
from torchctl.testing.controlplane import ControlPlane

__all__ = ["missing", "schema_of", "sent"]


async def sent(cluster: ControlPlane, body: dict[str, Any]) -> dict[str, Any]:
    """What the API server would keep of an object. Raises CommandFailed where it has a field that it does not know."""
    text = await cluster.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "yaml", "-f-"),
        input=yaml.safe_dump(body),
    )
    kept: dict[str, Any] = yaml.safe_load(text)
    return kept


def schema_of(directory: str, kind: Kind[Any], field: str = "status") -> dict[str, Any]:
    """The schema of a field of a kind, from the CRDs in a directory."""
    files = sorted(Path(directory).glob("*.yaml"))
    every = [document for path in files for document in yaml.safe_load_all(path.read_text()) if document]
    name = f"{kind.plural}.{kind.group}"
    versions = next(crd for crd in every if crd["metadata"]["name"] == name)["spec"]["versions"]
    (version,) = (version for version in versions if version["name"] == kind.version)
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"][field]
    return found


def missing(struct: type, schema: dict[str, Any], path: str) -> list[str]:
    """Fields of a struct, at every level, for which the schema has no property."""
    found: list[str] = []
    for field in msgspec.structs.fields(struct):
        name, properties = camel(field.name), schema.get("properties", {})
        if name not in properties:
            found.append(f"{path}.{name}")
        inner = _struct_in(field.type)
        if inner is not None and name in properties:
            found += missing(inner, properties[name].get("items", properties[name]), f"{path}.{name}")
    return found


def _struct_in(annotation: Any) -> type | None:
    """The struct that a field holds, on its own, optional or in a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next(filter(None, map(_struct_in, getattr(annotation, "__args__", ()))), None)
