"""The parts of a pod that both kinds let users write: environment, mounts, tolerations, templates."""

from typing import Annotated

from pydantic import ConfigDict, Field

from torchctl.api.casing import camel
from torchctl.api.fields import DnsLabel, Model, MountPath, Open, StringMap

__all__ = [
    "Container",
    "Env",
    "EnvFrom",
    "EnvFromSource",
    "EnvVar",
    "KeptModel",
    "PodTemplate",
    "PodTemplateMetadata",
    "PodTemplateSpec",
    "Toleration",
    "Tolerations",
    "Volume",
    "VolumeMount",
]


class KeptModel(Model):
    """An object of Kubernetes' own of which we read a part: what we do not know is kept as it is."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=camel, populate_by_name=True)


class EnvVar(Model):
    """One environment variable."""

    name: str = Field(
        min_length=1,
        max_length=256,
        pattern="^[-._a-zA-Z][-._a-zA-Z0-9]*$",
        description="Name of the variable. Those that torchrun or the operator set (PET_*, TORCHRUN_*, RANK, "
        "WORLD_SIZE, MASTER_ADDR, ...) are refused.",
    )
    value: Annotated[str, Field(max_length=32768)] | None = Field(
        default=None, description="Its value; $(NAME) of an earlier variable is expanded. Default: empty."
    )
    value_from: Open | None = Field(
        default=None,
        description="Where its value comes from, as in a container: secretKeyRef, configMapKeyRef, fieldRef, ...",
    )


class EnvFromSource(KeptModel):
    """A Secret or ConfigMap of the namespace whose keys all become variables, as in a container."""

    prefix: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="Put before each key. Default: nothing."
    )


Env = Annotated[
    tuple[EnvVar, ...],
    Field(
        max_length=256,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]
EnvFrom = Annotated[
    tuple[EnvFromSource, ...], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"})
]


class Toleration(Model):
    """A taint that the pods tolerate, as in a pod."""

    key: Annotated[str, Field(max_length=317)] | None = Field(
        default=None, description="Key of the taint. Default: every key, with operator Exists."
    )
    operator: Annotated[str, Field(max_length=16, pattern="^(Exists|Equal|Lt|Gt)$")] | None = Field(
        default=None, description="How value is compared: Equal, Exists, Lt or Gt. Default: Equal."
    )
    value: Annotated[str, Field(max_length=63)] | None = Field(
        default=None, description="Value of the taint. Default: empty."
    )
    effect: Annotated[str, Field(max_length=32, pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$")] | None = Field(
        default=None,
        description="Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute. Default: every effect.",
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        default=None, description="Seconds for which a NoExecute taint is tolerated. Default: for ever."
    )


Tolerations = Annotated[
    tuple[Toleration, ...], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"})
]


class Volume(KeptModel):
    """A volume of the worker pods, as in a pod."""

    name: DnsLabel = Field(description="Name that additionalMounts refer to.")


class VolumeMount(KeptModel):
    """Where a volume is mounted in the container `trainer`, as in a container."""

    name: DnsLabel = Field(description="Name of the volume.")
    mount_path: MountPath = Field(description="Absolute path in the container.")
    sub_path: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="Path inside the volume. Default: its root."
    )
    read_only: bool | None = Field(default=None, description="Whether the mount is read-only. Default: false.")


class Container(KeptModel):
    """A container, as in a pod. Every field of Kubernetes is kept."""

    name: DnsLabel = Field(description="Name of the container. The first one is `trainer`.")


class PodTemplateMetadata(KeptModel):
    """Labels and annotations of the worker pods."""

    labels: StringMap | None = Field(default=None, description="Labels of the worker pods; the operator's own win.")
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=64)] | None = Field(
        default=None, description="Annotations of the worker pods; the operator's own win."
    )


class PodTemplateSpec(KeptModel):
    """The spec of the worker pods. Every field of Kubernetes is kept."""

    containers: (
        Annotated[
            tuple[Container, ...],
            Field(
                max_length=16,
                json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="Containers of the worker pods. The first is `trainer`, which runs the command; sidecars follow. "
        "Default: one container `trainer`, made from the queue's fields.",
    )


class PodTemplate(KeptModel):
    """A pod template under the queue's and the job's own fields, which win."""

    metadata: PodTemplateMetadata | None = Field(default=None, description="Labels and annotations of the worker pods.")
    spec: PodTemplateSpec | None = Field(default=None, description="Spec of the worker pods, as Kubernetes defines it.")
