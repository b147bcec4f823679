"""The base of every object in a spec."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from torchctl.api.casing import camel
from torchctl.api.rules import Rule

__all__ = ["KeptModel", "Model"]


class Model(BaseModel):
    """One object in a spec: immutable, camelCase in JSON, and no field that it does not know.

    Shape and bounds are checked when it is made; `rules` say what must hold across fields.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.schema() for rule in cls.rules]
        if cls.model_config.get("extra") == "allow":
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return schema


class KeptModel(Model):
    """An object of Kubernetes' own of which we read a part: what we do not know is kept as it is."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=camel, populate_by_name=True)
