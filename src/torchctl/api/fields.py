"""The types of single fields: what text may stand there, bounded, with linear patterns that RE2 and Python both know."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from torchctl.api import quantity
from torchctl.api.casing import camel

__all__ = [
    "AccessModes",
    "Amount",
    "AmountOrUnlimited",
    "ClaimName",
    "DnsLabel",
    "DnsName",
    "Duration",
    "Image",
    "LabelKey",
    "LabelValue",
    "Line",
    "Model",
    "MountPath",
    "Open",
    "Port",
    "Size",
    "StringMap",
]

MAX_INT32 = 2**31 - 1
MAX_QUANTITY = 32

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME_PART = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"


class Model(BaseModel):
    """One object in a spec: immutable, camelCase in JSON, and no field that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)


DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")]
DnsName = Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^{_LABEL}(\.{_LABEL})*$")]
"""A DNS-1123 subdomain that is short enough to be the value of a label."""
ClaimName = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})*$")]
"""A DNS-1123 subdomain: how Kubernetes names most objects."""
LabelValue = Annotated[str, Field(max_length=63, pattern=f"^({_NAME_PART})?$")]
LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=rf"^({_LABEL}(\.{_LABEL})*/)?{_NAME_PART}$")]
"""A qualified name: a label key, or an extended resource such as nvidia.com/gpu."""
Image = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S+$")]
Line = Annotated[str, Field(min_length=1, max_length=32768)]
"""A shell line, possibly of several lines."""
MountPath = Annotated[str, Field(min_length=2, max_length=1024, pattern=r"^/[^:\x00]+$")]
"""An absolute path in a container, not the root."""
Port = Annotated[int, Field(ge=1024, le=65535)]
Duration = Annotated[str, Field(max_length=32, pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$")]
"""A duration as Go writes it: 90s, 10m, 1h30m."""
AccessModes = Annotated[
    tuple[
        Annotated[
            str,
            Field(
                json_schema_extra={"enum": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]},
                pattern="^(ReadWriteOnce|ReadOnlyMany|ReadWriteMany|ReadWriteOncePod)$",
                max_length=16,
            ),
        ],
        ...,
    ],
    Field(min_length=1, max_length=4, json_schema_extra={"x-kubernetes-list-type": "set"}),
]

Open = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]
"""An object of Kubernetes' own that we hand on as it is: the API server judges it when the pod is made."""


StringMap = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=64)]


def _amount(value: int | str) -> int | str:
    if quantity.parse(value).value < 0:
        raise ValueError("must not be negative")
    return value


def _size(value: int | str) -> int | str:
    if quantity.parse(value).value <= 0:
        raise ValueError("must be greater than 0")
    return value


def _amount_or_unlimited(value: int | str) -> int | str:
    return value if str(value) == "-1" else _amount(value)


def _int_or_string(**more: object) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": MAX_QUANTITY,
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
    ),
]
"""A quantity greater than 0."""
AmountOrUnlimited = Annotated[
    int | str,
    AfterValidator(_amount_or_unlimited),
    _int_or_string(pattern=f"^-1$|{quantity.PATTERN}", minimum=-1),
]
"""A quantity of at least 0, or -1 for no bound."""
