"""Turns the JSON Schemas of pydantic and msgspec into the structural form that Kubernetes accepts.

References are resolved, and `X | None` becomes X, because Kubernetes leaves an absent field out. Titles, and defaults
that only Python needs, are dropped. Keywords get one order.
"""

import copy
from typing import Any

import msgspec
from pydantic import BaseModel

from torchctl.api.statusfields import SHOWN

__all__ = ["Schema", "of_model", "of_struct"]

Schema = dict[str, Any]

_ORDER = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "anyOf",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)

_CONDITION: Schema = {
    "description": "One step and how it stands.",
    "type": "object",
    "required": ["type", "status", "reason", "lastTransitionTime"],
    "properties": {
        "type": {"description": "Name of the step.", "type": "string", "minLength": 1, "maxLength": 316},
        "status": {"description": "True, False or Unknown.", "type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {
            "description": "Why, in one word that programs may rely on.",
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "message": {
            "description": "Why, for a person: the object that matters and the next step.",
            "type": "string",
            "maxLength": 32768,
        },
        "lastTransitionTime": {
            "description": "When status changed last.",
            "type": "string",
            "format": "date-time",
        },
        "observedGeneration": {
            "description": "metadata.generation of the spec that this is about.",
            "type": "integer",
            "format": "int64",
            "minimum": 0,
        },
    },
}


def of_model(model: type[BaseModel]) -> Schema:
    """Returns the structural schema of a spec."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def of_struct(struct: type[msgspec.Struct]) -> Schema:
    """Returns the structural schema of a status. Only numbers that are shown have defaults."""
    _, definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    definitions["Condition"] = copy.deepcopy(_CONDITION)
    _mark_defaults(definitions)
    return _structural(definitions[struct.__name__], definitions)


def _structural(schema: Schema, definitions: Schema) -> Schema:
    node = _unwrapped(_resolved(schema, definitions), definitions)
    if "properties" in node:
        node["properties"] = {name: _structural(child, definitions) for name, child in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = _structural(node[key], definitions)
    return _tidied(node)


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    """Replaces a reference by what it names; what stands beside it wins."""
    if "$ref" not in schema:
        return dict(schema)
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions), **beside}


def _unwrapped(schema: Schema, definitions: Schema) -> Schema:
    """Replaces `X | None` by X, because Kubernetes has no null: an absent field is left out."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1 or "x-kubernetes-int-or-string" in schema:
        return schema
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    return _unwrapped({**_resolved(choices[0], definitions), **beside}, definitions)


def _tidied(node: Schema) -> Schema:
    """Puts keywords in one order and drops those that Kubernetes does not know."""
    if node.get("additionalProperties") is False or node.get("additionalProperties") is True:
        del node["additionalProperties"]
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "x-kubernetes-int-or-string" in node:
        node.pop("type", None)
    if node.get("type") == "integer":
        node.setdefault("format", "int32" if node.get("maximum", 2**63) < 2**31 else "int64")
    if node.get("default") in (None, []) or (node.get("type") == "object" and not node.get("x-written-out")):
        node.pop("default", None)
    if not node.get("required", True):
        del node["required"]
    return {key: _plain(node[key]) for key in _ORDER if key in node}


def _plain(value: Any) -> Any:
    """Whole numbers as such: -1, not -1.0."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _mark_defaults(definitions: Schema) -> None:
    """Keeps the defaults of fields that are shown, and drops all others."""
    for definition in definitions.values():
        for field in definition.get("properties", {}).values():
            if field.pop(SHOWN, False):
                field["x-written-out"] = True
            else:
                field.pop("default", None)
