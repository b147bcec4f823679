"""The entries of a queue's spec.resources: name and content of each object, and checks of its template. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchctl.api import quantity
from torchctl.api.extras import ExtraResource, NameMode
from torchctl.api.kube import CONFIG_MAP, PVC
from torchctl.api.labels import owned_key
from torchctl.api.written import canonical, plain
from torchctl.runtime.intent import digest_of

__all__ = ["clash_of", "content_of", "object_name", "problem_of"]

Json = dict[str, Any]

CONTENT: Mapping[str, tuple[str, ...]] = {
    CONFIG_MAP.kind: ("data", "binaryData", "immutable"),
    PVC.kind: ("spec",),
}
"""The fields that are taken from a template, besides labels and annotations."""
PASSED_OVER = ("apiVersion", "kind", "metadata", "status")
OF_KUBERNETES = ("kubernetes.io", "k8s.io")
"""Domains of labels and annotations that a template cannot set, because Kubernetes' own controllers act on them."""
DIGEST_LENGTH = 10


def object_name(entry: ExtraResource) -> str:
    """Returns the object's name: the entry's, with a hash of the content if nameMode is prefix."""
    if entry.name_mode is NameMode.EXACT:
        return entry.name
    return f"{entry.name}-{digest_of(content_of(entry))[:DIGEST_LENGTH]}"


def content_of(entry: ExtraResource) -> Json:
    """Returns labels, annotations and content that a template gives an object, in canonical form."""
    template = plain(entry.template)
    metadata = template.get("metadata", {})
    content = {field: template[field] for field in CONTENT[entry.template.kind] if field in template}
    if "binaryData" in content:  # base64 comes back without the line breaks that it may have
        content["binaryData"] = {key: "".join(text.split()) for key, text in content["binaryData"].items()}
    return {
        "labels": {key: value for key, value in metadata.get("labels", {}).items() if not _reserved(key)},
        "annotations": {key: value for key, value in metadata.get("annotations", {}).items() if not _reserved(key)},
        "content": canonical(content) if "spec" in content else content,
    }


def _reserved(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return (
        owned_key(key)
        or domain == "torchctl.runtime"
        or any(domain == reserved or domain.endswith(f".{reserved}") for reserved in OF_KUBERNETES)
    )


def problem_of(entry: ExtraResource) -> str:
    """Returns the first problem of a template, as far as the operator reads it; empty if there is none."""
    return next(_problems(plain(entry.template), entry.template.kind), "")


def clash_of(entries: Iterable[ExtraResource]) -> str:
    """Names two entries that stand for the same object; empty if there are none.

    Each would change back for ever what the other wrote. Their names differ, so the name of one of them contains the
    hash of the other. The templates must be valid.
    """
    found: dict[tuple[str, str], str] = {}
    for entry in entries:
        key = (entry.template.kind, object_name(entry))
        if key in found:
            return f"{found[key]} and {entry.name} would both be {' '.join(key)}: rename one of them"
        found[key] = entry.name
    return ""


def _problems(template: Json, kind: str) -> Iterator[str]:
    fields = CONTENT[kind]
    unknown = sorted(set(template) - {*fields, *PASSED_OVER})
    if unknown:
        yield f"{unknown[0]} is no field of a {kind} here, which has {', '.join(fields)}: remove it"
    metadata = template.get("metadata", {})
    if not isinstance(metadata, Mapping):
        yield "metadata must be an object"
    else:
        for field in ("labels", "annotations"):
            if not _are_texts(metadata.get(field, {})):
                yield f"metadata.{field} must be an object of strings"
    for field in ("data", "binaryData"):
        if not _are_texts(template.get(field, {})):
            yield f"{field} must be an object of strings: put numbers and booleans in quotes"
    if not isinstance(template.get("immutable", False), bool):
        yield "immutable must be true or false"
    if kind == PVC.kind:
        yield from _claim_problems(template.get("spec"))


def _claim_problems(spec: Any) -> Iterator[str]:
    if not isinstance(spec, Mapping):
        yield "spec is missing: a PersistentVolumeClaim needs spec.accessModes and spec.resources.requests.storage"
        return
    for parent, field in (("spec", "resources"), ("spec.resources", "requests")):
        spec = spec.get(field, {})
        if not isinstance(spec, Mapping):
            yield f"{parent}.{field} must be an object"
            return
    if not _is_amount(spec.get("storage", 1)):
        yield "spec.resources.requests.storage must be a quantity such as 10Gi"


def _are_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())


def _is_amount(value: Any) -> bool:
    try:
        return isinstance(value, int | str) and quantity.parse(value).value > 0
    except ValueError:
        return False
