"""The parts of a pod that both kinds let users write: environment, mounts, tolerations, templates."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from torchctl.api.casing import camel
from torchctl.api.fields import (
    LIST_OF_NAMED,
    MAX_DOMAIN,
    QUALIFIED_NAME,
    UNIQUE_NAMES,
    Annotations,
    DnsLabel,
    LabelKey,
    Labels,
    LabelValue,
    MountPath,
    Open,
)
from torchctl.api.labels import OWNED_ENV, OWNED_ENV_PREFIXES, OWNED_KEY_PREFIXES, OWNED_KEYS, owned_env, owned_key
from torchctl.api.model import KeptModel, Model
from torchctl.api.names import TRAINER
from torchctl.api.rules import Rule

__all__ = [
    "Container",
    "Env",
    "EnvFrom",
    "EnvFromSource",
    "EnvVar",
    "PodTemplate",
    "PodTemplateMetadata",
    "PodTemplateSpec",
    "SyncPodTemplate",
    "Toleration",
    "Tolerations",
    "Volume",
    "VolumeMount",
    "no_owned_keys",
    "qualified_keys",
]


_VARIABLE = "([-_a-zA-Z]|[.][-_a-zA-Z0-9])[-._a-zA-Z0-9]*"
"""Names of variables that every version of Kubernetes takes."""


def _listed(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _starts(subject: str, prefixes: tuple[str, ...]) -> str:
    return " || ".join(f"{subject}.startsWith('{prefix}')" for prefix in prefixes)


def no_owned_keys(field: str) -> Rule:
    """Checks that no key of a map of labels or annotations belongs to the operator."""

    def holds(model: Model) -> bool:
        return not any(map(owned_key, getattr(model, field) or ()))

    return Rule(
        cel=f"!has(self.{field}) || self.{field}.all(k, !(k in {_listed(OWNED_KEYS)} "
        f"|| {_starts('k', OWNED_KEY_PREFIXES)}))",
        message=f"{field} must not have keys of the operator: "
        + ", ".join((*(f"{prefix}*" for prefix in OWNED_KEY_PREFIXES), *OWNED_KEYS)),
        holds=holds,
        field=field,
    )


def qualified_keys(field: str) -> Rule:
    """Checks that Kubernetes accepts every key of a map of labels or annotations.

    Kubernetes judges annotations in lower case (apimachinery, ValidateAnnotations), so their domains may have capitals.
    """
    name, lowered = camel(field), field == "annotations"
    key = "k.lowerAscii()" if lowered else "k"

    def holds(model: Model) -> bool:
        return all(_is_qualified(key.lower() if lowered else key) for key in getattr(model, field) or ())

    return Rule(
        cel=f"!has(self.{name}) || self.{name}.all(k, k.indexOf('/') <= {MAX_DOMAIN} "
        f"&& {key}.matches('{QUALIFIED_NAME}'))",
        message=f"keys of {name} must be like team or example.com/team: at most 63 letters, digits, '-', '_' and '.', "
        "with a letter or digit at both ends",
        holds=holds,
        field=name,
    )


def _is_qualified(key: str) -> bool:
    return key.find("/") <= MAX_DOMAIN and re.fullmatch(QUALIFIED_NAME, key) is not None


class EnvVar(Model):
    """One environment variable."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!(self.name in {_listed(OWNED_ENV)} || {_starts('self.name', OWNED_ENV_PREFIXES)})",
            message="name must not be a variable of torchrun or the operator: PET_*, TORCHRUN_*, "
            + ", ".join(OWNED_ENV),
            holds=lambda self: not owned_env(self.name),
            field="name",
        ),
        Rule(
            cel="!has(self.valueFrom) || !has(self.value) || self.value == ''",
            message="value and valueFrom exclude each other",
            holds=lambda self: self.value_from is None or not self.value,
        ),
    )

    name: str = Field(
        min_length=1,
        max_length=256,
        pattern=f"^{_VARIABLE}$",
        description="Name of the variable. Those that torchrun or the operator set (PET_*, TORCHRUN_*, RANK, "
        "WORLD_SIZE, MASTER_ADDR, ...) are refused.",
    )
    value: Annotated[str, Field(max_length=32768)] | None = Field(
        default=None, description="Its value; $(NAME) of an earlier variable is expanded. Default: empty."
    )
    value_from: Open | None = Field(
        default=None,
        description="Where its value comes from, as in a container: secretKeyRef, fieldRef, ... Default: none.",
    )


class EnvFromSource(KeptModel):
    """A Secret or ConfigMap of the namespace whose keys all become variables, as in a container."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.configMapRef) != has(self.secretRef)",
            message="exactly one of configMapRef and secretRef must be set",
            holds=lambda self: (self.config_map_ref is None) != (self.secret_ref is None),
        ),
    )

    prefix: Annotated[str, Field(max_length=256, pattern=f"^({_VARIABLE})?$")] | None = Field(
        default=None, description="Put before each key. Default: nothing."
    )
    config_map_ref: Open | None = Field(default=None, description="The ConfigMap, by name. Either this or secretRef.")
    secret_ref: Open | None = Field(default=None, description="The Secret, by name. Either this or configMapRef.")


Env = Annotated[
    tuple[EnvVar, ...],
    Field(
        max_length=256,
        json_schema_extra=LIST_OF_NAMED,
    ),
    UNIQUE_NAMES,
]
EnvFrom = Annotated[
    tuple[EnvFromSource, ...], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"})
]


class Toleration(Model):
    """A taint that the pods tolerate, as in a pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.key) || self.?operator.orValue('') == 'Exists'",
            message="without a key, operator must be Exists",
            holds=lambda self: self.key is not None or self.operator == "Exists",
            field="operator",
        ),
        Rule(
            cel="self.?operator.orValue('') != 'Exists' || self.?value.orValue('') == ''",
            message="value does not go with operator Exists",
            holds=lambda self: self.operator != "Exists" or not self.value,
            field="value",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || self.?effect.orValue('') == 'NoExecute'",
            message="tolerationSeconds goes with effect NoExecute only",
            holds=lambda self: self.toleration_seconds is None or self.effect == "NoExecute",
            field="effect",
        ),
    )

    key: LabelKey | None = Field(
        default=None, description="Key of the taint. Default: every key, with operator Exists."
    )
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = Field(
        default=None, description="How value is compared: Equal, Exists, Lt or Gt. Default: Equal."
    )
    value: LabelValue | None = Field(default=None, description="Value of the taint. Default: empty.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
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
    """A mount of a volume in the container `trainer`, as in a container."""

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

    rules: ClassVar[tuple[Rule, ...]] = (qualified_keys("labels"), qualified_keys("annotations"))

    labels: Labels | None = Field(
        default=None,
        description="Labels of the worker pods and of all other children, except that only the workers have those of "
        "Kueue (kueue.x-k8s.io/*); the operator's own win.",
    )
    annotations: Annotations | None = Field(
        default=None,
        description="Annotations of the worker pods, and of Job, sync pods and claims, except that only worker pods "
        "have networks (k8s.v1.cni.cncf.io/*) and only the workers those of Kueue; the operator's own win.",
    )


class PodTemplateSpec(KeptModel):
    """The spec of the worker pods. Every field of Kubernetes is kept."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.containers) || size(self.containers) == 0 || self.containers[0].name == 'trainer'",
            message="the first of containers must be named trainer: it runs the command",
            holds=lambda self: not self.containers or self.containers[0].name == TRAINER,
            field="containers",
        ),
        Rule(
            cel="!has(self.containers) || self.containers.filter(c, c.name == 'trainer').size() <= 1",
            message="only one of containers may be named trainer",
            holds=lambda self: [container.name for container in self.containers or ()].count(TRAINER) <= 1,
            field="containers",
        ),
    )

    containers: (
        Annotated[
            tuple[Container, ...],
            Field(max_length=16, json_schema_extra=LIST_OF_NAMED),
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


class SyncContainer(KeptModel):
    """A container, as in a pod. Every field of Kubernetes is kept."""

    name: DnsLabel = Field(description="Name of the container: `fetch`, `serve`, or one more that runs beside them.")


class SyncPodMetadata(KeptModel):
    """Labels and annotations of the sync pods."""

    rules: ClassVar[tuple[Rule, ...]] = (qualified_keys("labels"), qualified_keys("annotations"))

    labels: Labels | None = Field(
        default=None, description="Labels of the sync pods; the operator's own win. Default: the workers'."
    )
    annotations: Annotations | None = Field(
        default=None, description="Annotations of the sync pods; the operator's own win. Default: the workers'."
    )


class SyncPodSpec(KeptModel):
    """The spec of the sync pods. Every field of Kubernetes is kept."""

    containers: (
        Annotated[
            tuple[SyncContainer, ...],
            Field(max_length=16, json_schema_extra=LIST_OF_NAMED),
        ]
        | None
    ) = Field(
        default=None,
        description="What is put over `fetch` and `serve` by name (resources, securityContext, env, volumeMounts, ...; "
        "image, command and args are the operator's), and further containers. Default: none.",
    )


class SyncPodTemplate(KeptModel):
    """A pod template over what the operator makes for the sync pods."""

    metadata: SyncPodMetadata | None = Field(
        default=None, description="Labels and annotations of the sync pods, over the workers'. Default: the workers'."
    )
    spec: SyncPodSpec | None = Field(
        default=None, description="Spec of the sync pods, as Kubernetes defines it. Default: none."
    )
