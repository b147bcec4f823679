"""Types of single fields, with bounds and with patterns that RE2 and Python match in linear time."""

import re
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from torchctl.api import quantity
from torchctl.api.model import Model

__all__ = [
    "LIST_OF_NAMED",
    "MAX_DOMAIN",
    "MAX_INT32",
    "QUALIFIED_NAME",
    "UNIQUE_NAMES",
    "UNSAID",
    "WRITTEN_OUT",
    "AccessMode",
    "AccessModes",
    "Amount",
    "AmountOrUnlimited",
    "Annotations",
    "ClaimName",
    "DnsLabel",
    "DnsName",
    "Duration",
    "Image",
    "LabelKey",
    "LabelValue",
    "Labels",
    "Line",
    "Model",
    "MountPath",
    "Open",
    "Port",
    "Size",
    "keyed_by",
    "unique",
]

MAX_INT32 = 2**31 - 1

_MAX_QUANTITY = 32
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME_PART = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


class AccessMode(StrEnum):
    """The access mode of a claim, as in Kubernetes."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_ONLY_MANY = "ReadOnlyMany"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


_ALONE = "ReadWriteOncePod does not go with other access modes"


def _alone(modes: tuple[AccessMode, ...]) -> tuple[AccessMode, ...]:
    if AccessMode.READ_WRITE_ONCE_POD in modes and len(modes) > 1:
        raise ValueError(_ALONE)
    return modes


def keyed_by(key: str) -> dict[str, Any]:
    """Schema of a list whose items this field names. Server-side apply merges by it, and no name occurs twice."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def unique(key: str) -> AfterValidator:
    """Checks in Python that no two items of a list have the same `key`."""

    def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
        keys = [getattr(item, key) for item in items]
        repeated = next((value for value in keys if keys.count(value) > 1), None)
        if repeated is not None:
            raise ValueError(f"{repeated!r} occurs twice")
        return items

    return AfterValidator(check)


LIST_OF_NAMED = keyed_by("name")
UNIQUE_NAMES = unique("name")
UNSAID: dict[str, Any] = {"default": None}
"""Keeps a default out of the schema if it matters whether the user set the field."""
WRITTEN_OUT: dict[str, Any] = {"x-written-out": True}
"""An object that the API server makes if it is absent, so that the defaults in it show."""

DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")]
DnsName = Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^{_LABEL}(\.{_LABEL})*$")]
"""A DNS-1123 subdomain that is short enough to be the value of a label."""
ClaimName = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})*$")]
"""A DNS-1123 subdomain, the form of most objects' names in Kubernetes."""
LabelValue = Annotated[str, Field(max_length=63, pattern=f"^({_NAME_PART})?$")]
QUALIFIED_NAME = f"^({_LABEL}([.]{_LABEL})*/)?{_NAME_PART}$"
MAX_DOMAIN = 253
LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=QUALIFIED_NAME)]
"""A qualified name: a label key, or an extended resource such as nvidia.com/gpu."""
Labels = Annotated[dict[str, LabelValue], Field(max_length=64)]
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=64)]
Image = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S+$")]
Line = Annotated[str, Field(min_length=1, max_length=32768, pattern=r"\S")]
"""A shell line, possibly of several lines, not blank."""
MountPath = Annotated[str, Field(min_length=2, max_length=1024, pattern=r"^/[^:\x00]+$")]
"""An absolute path in a container, not the root."""
Port = Annotated[int, Field(ge=1024, le=65535)]
Duration = Annotated[str, Field(min_length=2, max_length=32, pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$")]
"""A duration as Go writes it: 90s, 10m, 1h30m."""
AccessModes = Annotated[
    tuple[AccessMode, ...],
    Field(
        min_length=1,
        max_length=4,
        json_schema_extra={
            "x-kubernetes-list-type": "set",
            "x-kubernetes-validations": [
                {"rule": "!('ReadWriteOncePod' in self) || size(self) == 1", "message": _ALONE}
            ],
        },
    ),
    AfterValidator(_alone),
]
Open = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "maxProperties": 64, "x-kubernetes-preserve-unknown-fields": True}),
]
"""An object of Kubernetes' own that we hand on as it is: the API server judges it when the pod is made."""


def _amount(value: int | str) -> int | str:
    if isinstance(value, str) and (len(value) > _MAX_QUANTITY or not re.match(quantity.PATTERN, value)):
        raise ValueError("must be a quantity such as 4, 500m or 10Gi, not negative")
    if quantity.parse(value).value < 0:
        raise ValueError("must not be negative")
    return value


def _size(value: int | str) -> int | str:
    if quantity.parse(_amount(value)).value == 0:
        raise ValueError("must be greater than 0")
    return value


def _amount_or_unlimited(value: int | str) -> int | str:
    return value if value in (-1, "-1") else _amount(value)


def _int_or_string(**more: object) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": _MAX_QUANTITY,
            **more,
        }
    )


Amount = Annotated[int | str, AfterValidator(_amount), _int_or_string(pattern=quantity.PATTERN, minimum=0)]
"""A quantity of at least 0: 4, "500m", "512Gi"."""
Size = Annotated[
    int | str,
    AfterValidator(_size),
    _int_or_string(
        pattern=quantity.PATTERN,
        minimum=1,
        **{
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int || quantity(self).isGreaterThan(quantity('0'))",
                    "message": "must be greater than 0",
                }
            ]
        },
    ),
]
"""A quantity greater than 0."""
AmountOrUnlimited = Annotated[
    int | str, AfterValidator(_amount_or_unlimited), _int_or_string(pattern=f"^-1$|{quantity.PATTERN}", minimum=-1)
]
"""A quantity of at least 0, or -1 for no bound."""
