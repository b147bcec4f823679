"""The CustomResourceDefinitions, generated from the types: `make manifests` writes them into config/crd/."""

from dataclasses import dataclass
from typing import Any

from torchctl.api.job import TORCHRUN_JOB, JobSpec, JobStatus, TorchrunJob
from torchctl.api.jobrules import JOB_OBJECT_RULES
from torchctl.api.names import MAX_QUEUE_NAME
from torchctl.api.queue import TORCHRUN_QUEUE, QueueSpec, QueueStatus, TorchrunQueue
from torchctl.api.rules import Rule
from torchctl.api.schema import Schema, of_model, of_struct
from torchctl.runtime.kinds import Kind

__all__ = ["Column", "crds"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    description: str = ""

    def schema(self) -> Schema:
        shown = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return shown | ({"description": self.description} if self.description else {})


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

_JOB_COLUMNS = (
    Column("Queue", ".spec.jobQueue", description="TorchrunQueue of the job."),
    Column("Nodes", ".status.nodes.desired", "integer", "Nodes that the job should have."),
    Column("GPUs", ".status.gpus", "integer", "GPUs of the whole job."),
    Column("Phase", ".status.phase", description="Where the job is."),
    Column(
        "Workers",
        ".status.workersStatus",
        description="Workers that run, of those that should; in the end those that succeeded or failed.",
    ),
    Column("Restarts", ".status.restarts.total", "integer", "Incidents so far, also one that ended the job."),
    _AGE,
)
_QUEUE_COLUMNS = (
    Column("KaiQueue", ".spec.kaiQueue", description="KAI queue of the jobs."),
    Column("Ready", '.status.conditions[?(@.type=="Ready")].status', description="Whether jobs can run."),
    Column("Running", ".status.jobs.running", "integer", "Jobs whose workers start, run or restart."),
    Column("Queued", ".status.jobs.queued", "integer", "Jobs that wait for admission."),
    Column("GPUs", ".status.gpus.running", "integer", "GPUs of the jobs whose workers run."),
    _AGE,
)
_QUEUE_OBJECT_RULES = (
    Rule(
        cel=f"size(self.metadata.name) <= {MAX_QUEUE_NAME}",
        message=f"metadata.name must have at most {MAX_QUEUE_NAME} characters: it is the value of a label",
    ),
)
_SCALE = {
    "specReplicasPath": ".spec.numNodes",
    "statusReplicasPath": ".status.nodes.ready",
    "labelSelectorPath": ".status.selector",
}


def crds() -> tuple[dict[str, Any], ...]:
    """Both CustomResourceDefinitions in their JSON form."""
    queue = _object(_summary(TorchrunQueue), of_model(QueueSpec), of_struct(QueueStatus), _QUEUE_OBJECT_RULES)
    job = _object(_summary(TorchrunJob), of_model(JobSpec), of_struct(JobStatus), JOB_OBJECT_RULES)
    return (
        _crd(TORCHRUN_QUEUE, ["trq"], queue, _QUEUE_COLUMNS, {"status": {}}),
        _crd(TORCHRUN_JOB, ["tj", "trj"], job, _JOB_COLUMNS, {"status": {}, "scale": _SCALE}),
    )


def _summary(type_: type) -> str:
    return " ".join((type_.__doc__ or "").split())


def _object(description: str, spec: Schema, status: Schema, rules: tuple[Rule, ...]) -> Schema:
    return {
        "description": description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": "Version of this representation of the object.", "type": "string"},
            "kind": {"description": "Kind of the object.", "type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [rule.schema() for rule in rules],
    }


def _crd(
    kind: Kind[Any], short_names: list[str], schema: Schema, columns: tuple[Column, ...], subresources: Schema
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": short_names,
                "categories": ["torchrun"],
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": [column.schema() for column in columns],
                    "subresources": subresources,
                }
            ],
        },
    }
