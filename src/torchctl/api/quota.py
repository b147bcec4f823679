"""Bounds of what the jobs of a TorchrunQueue hold: guarantees and limits of its KAI queue, quotas that we count."""

from typing import Annotated, ClassVar

from pydantic import Field

from torchctl.api import quantity
from torchctl.api.fields import WRITTEN_OUT, Amount, AmountOrUnlimited
from torchctl.api.model import Model
from torchctl.api.rules import Rule

__all__ = ["OFF", "ComputeResources", "GpuResources", "KaiResources", "QueueQuota"]


def _within(quota: int | str, limit: int | str) -> bool:
    """Whether a quota is at most its limit; -1 means no bound."""
    return "-1" in (str(quota), str(limit)) or quantity.parse(quota).value <= quantity.parse(limit).value


_QUOTA_WITHIN_LIMIT = "quota must not exceed limit, unless one of them is -1"

_Unbounded = Annotated[float, Field(ge=-1, le=1e9)]
_Weight = Annotated[float, Field(ge=0, le=1e9)]


class GpuResources(Model):
    """GPUs of the KAI queue, in devices; parts of one are legal."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.quota == -1.0 || self.quota >= 0.0",
            message="quota must be -1 or at least 0",
            holds=lambda self: self.quota == -1 or self.quota >= 0,
            field="quota",
        ),
        Rule(
            cel="self.limit == -1.0 || self.limit >= 0.0",
            message="limit must be -1 or at least 0",
            holds=lambda self: self.limit == -1 or self.limit >= 0,
            field="limit",
        ),
        Rule(
            cel="self.quota == -1.0 || self.limit == -1.0 || self.quota <= self.limit",
            message=_QUOTA_WITHIN_LIMIT,
            holds=lambda self: -1 in (self.quota, self.limit) or self.quota <= self.limit,
            field="quota",
        ),
    )

    quota: _Unbounded = Field(default=-1, description="GPUs guaranteed to the queue; -1: no bound. Default: -1.")
    limit: _Unbounded = Field(default=-1, description="GPUs that the queue may use at most; -1: no bound. Default: -1.")
    over_quota_weight: _Weight = Field(
        default=1, description="Share of what is left over, relative to the sister queues. Default: 1."
    )


class ComputeResources(Model):
    """CPU or memory of the KAI queue; quantities are converted to KAI's units (millicores, MB)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="string(self.quota) == '-1' || string(self.limit) == '-1' "
            "|| quantity(string(self.quota)).compareTo(quantity(string(self.limit))) <= 0",
            message=_QUOTA_WITHIN_LIMIT,
            holds=lambda self: _within(self.quota, self.limit),
            field="quota",
        ),
    )

    quota: AmountOrUnlimited = Field(
        default=-1, description="Quantity guaranteed to the queue; -1: no bound. Default: -1."
    )
    limit: AmountOrUnlimited = Field(
        default=-1, description="Quantity that the queue may use at most; -1: no bound. Default: -1."
    )
    over_quota_weight: _Weight = Field(
        default=1, description="Share of what is left over, relative to the sister queues. Default: 1."
    )


class KaiResources(Model):
    """The quotas and limits of the KAI queue. A resource that is left out is unbounded, not zero."""

    gpu: GpuResources = Field(
        default=GpuResources(), json_schema_extra=WRITTEN_OUT, description="GPUs, in devices. Default: unbounded."
    )
    cpu: ComputeResources = Field(
        default=ComputeResources(),
        json_schema_extra=WRITTEN_OUT,
        description="CPUs, as a quantity: 96, 500m. Default: unbounded.",
    )
    memory: ComputeResources = Field(
        default=ComputeResources(),
        json_schema_extra=WRITTEN_OUT,
        description="Memory, as a quantity: 512Gi. Default: unbounded.",
    )


OFF = "Refused while the coordinator is off."


class QueueQuota(Model):
    """Bounds for what the jobs of the queue hold together."""

    gpus: Annotated[int, Field(ge=0, le=10_000_000)] | None = Field(
        default=None, description="GPUs, in devices. Default: no bound."
    )
    cpus: Amount | None = Field(default=None, description="CPUs, as a quantity. Default: no bound.")
    memory: Amount | None = Field(default=None, description="Memory, as a quantity: 512Gi. Default: no bound.")
    jobs: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Jobs that have been let in. Default: no bound."
    )
