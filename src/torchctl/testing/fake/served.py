"""Says which kinds a fake API server serves, and what their schemas mark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torchctl.runtime.kinds import Kind
from torchctl.testing.fake.fields import Path, Schema

__all__ = ["Admit", "Served", "served_by"]

Admit = Callable[[dict[str, Any] | None, dict[str, Any]], dict[str, Any]]
"""Takes an object before (None when it is created) and after a write; returns what is stored, or refuses the write."""

METADATA: Schema = {
    "properties": {
        **{
            name: {}
            for name in (
                *("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
                *("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"),
            )
        },
        "labels": {"additionalProperties": {}},
        "annotations": {"additionalProperties": {}},
        "finalizers": {"x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {"x-kubernetes-map-type": "atomic"},
        },
    }
}


@dataclass(frozen=True, eq=False)
class Served:
    """One kind, with the API server's rules for it. `served_by` reads them from a CRD.

    Attributes:
        kind: The kind.
        status: It has the status subresource.
        generation: `metadata.generation` counts changes of the spec. Most kinds without a spec have none.
        builtin: No custom resource: a replace may leave out the resourceVersion, and empty fields vanish.
        schema: Its OpenAPI schema. Only the marks `x-kubernetes-list-type`, `-list-map-keys`, `-map-type` and the names
            of declared fields count: nothing is validated, defaulted or pruned. The fields of the kind's struct are
            declared.
        graceful: A deletion leaves the object until its kubelet deletes it without grace, as of pods.
        admit: Defaults and validates what is written; raises `Rejection` to refuse it.
    """

    kind: Kind[Any]
    status: bool = False
    generation: bool = False
    builtin: bool = True
    schema: Schema = field(default_factory=dict)
    graceful: bool = False
    admit: Admit = lambda old, new: new

    @cached_property
    def marks(self) -> Schema:
        """The schema of a whole object."""
        known: tuple[str, ...] = getattr(self.kind.type, "__struct_encode_fields__", ())
        declared = {name: {} for name in known} | self.schema.get("properties", {})
        return {**self.schema, "properties": {**declared, "apiVersion": {}, "kind": {}, "metadata": METADATA}}

    def ignored(self, subresource: str) -> tuple[Path, ...]:
        """Returns the fields that a write to this endpoint leaves as they are."""
        if subresource:
            return (("f:metadata",), ("f:spec",))
        return (("f:status",),) if self.status else ()


def served_by(crd: Mapping[str, Any], kind: Kind[Any]) -> Served:
    """Returns the rules that a CustomResourceDefinition sets for the version of `kind`."""
    spec = crd["spec"]
    version = next(version for version in spec["versions"] if version["name"] == kind.version)
    return Served(
        replace(kind, namespaced=spec["scope"] == "Namespaced"),
        status="status" in version.get("subresources", {}),
        generation=True,
        builtin=False,
        schema=version.get("schema", {}).get("openAPIV3Schema", {}),
    )
