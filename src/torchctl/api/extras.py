"""ConfigMaps and claims that the operator keeps for a TorchrunQueue."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from torchctl.api.fields import DnsName
from torchctl.api.model import KeptModel, Model

__all__ = ["ExtraResource", "ExtraTemplate", "NameMode"]


class NameMode(StrEnum):
    EXACT = "exact"
    PREFIX = "prefix"


class ExtraTemplate(KeptModel):
    """The object that should exist, without what the operator decides: name, namespace, owner."""

    api_version: Literal["v1"] = Field(description="API version of the object: v1.")
    kind: Literal["PersistentVolumeClaim", "ConfigMap"] = Field(
        description="Kind of the object: PersistentVolumeClaim or ConfigMap."
    )


class ExtraResource(Model):
    """An object that the operator keeps in the queue's namespace. One of that name that the queue did not make is never
    touched."""

    name: DnsName = Field(
        description="Name of the object, or what it begins with. The object of an entry that is removed goes once no "
        "unfinished job of the queue is left; a PersistentVolumeClaim stays, with its data, and is found again."
    )
    name_mode: NameMode = Field(
        default=NameMode.EXACT,
        description="exact: the object has this name, and a change of the template changes it. prefix: a hash of the "
        "template follows, so that a change makes another object; jobs that run keep theirs, and where the pods of a "
        "new job name the prefix they get the new one. Default: exact.",
    )
    template: ExtraTemplate = Field(
        description="A ConfigMap (data, binaryData, immutable) or PersistentVolumeClaim (spec). Of its metadata only "
        "labels and annotations are taken, without those of the operator and of Kubernetes. What somebody changes in "
        "the object is changed back, what somebody adds is left; of a claim only the size can change, and only grow."
    )
    immutable: bool = Field(
        default=False,
        description="Whether the object is left as it is once it exists: neither a later template nor what somebody "
        "changes in it leads to a write. Made again if it is deleted. Default: false.",
    )
