"""Defaults and validation of the kinds, as far as the operator meets them. Pure.

What the simulator does not model is refused, so that no test believes what was never simulated.
"""

from typing import Any

from torchctl.testing.fake.rejection import Rejection

__all__ = ["PVC_PROTECTION", "claim", "job", "pod", "torchrun_job"]

Json = dict[str, Any]

PVC_PROTECTION = "kubernetes.io/pvc-protection"
TOLERATED_S = 300
JOB_KEYS = ("batch.kubernetes.io/controller-uid", "controller-uid")
JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name")
FIXED_OF_JOB = ("selector", "completionMode", "podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "managedBy")
NOT_MODELLED = ("backoffLimitPerIndex", "maxFailedIndexes", "managedBy", "manualSelector")
MUTABLE_OF_POD = ("activeDeadlineSeconds", "schedulingGates", "tolerations", "nodeName")
MUTABLE_OF_TORCHRUN_JOB = ("suspend", "priority", "runPolicy", "queueUpdatePolicy")


def pod(old: Json | None, new: Json) -> Json:
    """A new pod is Pending, has 30 s of grace, tolerates a lost node for five minutes, and requests what it limits."""
    if old is not None:
        _check_fixed(old, new, MUTABLE_OF_POD)
        return new
    spec = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "dnsPolicy": "ClusterFirst",
        **new["spec"],
    }
    for containers in ("containers", "initContainers"):
        if containers in spec:
            spec[containers] = [*map(_requesting, spec[containers])]
    spec["tolerations"] = [*spec.get("tolerations", ()), *_missing_tolerations(spec.get("tolerations", ()))]
    return {**new, "spec": spec, "status": {"phase": "Pending", "qosClass": "Burstable"}}


def _requesting(container: Json) -> Json:
    resources = container.get("resources", {})
    if "limits" not in resources:
        return container
    requests = {**resources["limits"], **resources.get("requests", {})}
    return {**container, "resources": {**resources, "requests": requests}}


def job(old: Json | None, new: Json) -> Json:
    """A new Job gets its selector and the labels of its pods; later its template is fixed."""
    if old is not None:
        _check_job(old, new)
        return new
    meta, spec = new["metadata"], dict(new["spec"])
    if found := [name for name in NOT_MODELLED if name in spec]:
        raise Rejection(422, "Invalid", f"spec.{found[0]}: is not simulated")
    indexed = spec.get("completionMode") == "Indexed"
    names = dict.fromkeys(JOB_KEYS, meta["uid"]) | dict.fromkeys(JOB_NAMES, meta["name"])
    template = spec["template"]
    labels = {**template.get("metadata", {}).get("labels", {}), **names}
    template = {**template, "metadata": {**template.get("metadata", {}), "labels": labels}}
    if "completions" not in spec and "parallelism" not in spec and not indexed:
        spec["completions"] = 1
    replacement = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    defaults = {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": replacement,
        "selector": {"matchLabels": {JOB_KEYS[0]: meta["uid"]}},
    }
    return {**new, "spec": {**defaults, **spec, "template": template}}


def claim(old: Json | None, new: Json) -> Json:
    """A new claim is Pending, and is not deleted while a pod uses it."""
    if old is not None:
        return new
    meta = new["metadata"]
    finalizers = [*meta.get("finalizers", ()), PVC_PROTECTION]
    return {**new, "metadata": {**meta, "finalizers": finalizers}, "status": {"phase": "Pending"}}


def torchrun_job(old: Json | None, new: Json) -> Json:
    """Few fields of a TorchrunJob may change, its size only if it is elastic, as the rules of its CRD have it."""
    if old is not None:
        size = ("numNodes",) if "elastic" in new["spec"] else ()
        _check_fixed(old, new, (*MUTABLE_OF_TORCHRUN_JOB, *size))
    return new


def _check_job(old: Json, new: Json) -> None:
    before, after = old["spec"], new["spec"]
    starts = before.get("suspend") and "startTime" not in old.get("status", {})
    fixed = FIXED_OF_JOB if starts else (*FIXED_OF_JOB, "template")
    for name in fixed:
        if before.get(name) != after.get(name):
            raise Rejection(422, "Invalid", f"spec.{name}: Invalid value: field is immutable")
    if before.get("completions") != after.get("completions"):
        elastic = after.get("completionMode") == "Indexed" and after.get("completions") == after.get("parallelism")
        if not elastic:
            raise Rejection(422, "Invalid", "spec.completions: Invalid value: field is immutable")


def _check_fixed(old: Json, new: Json, mutable: tuple[str, ...]) -> None:
    before, after = ({name: one for name, one in body["spec"].items() if name not in mutable} for body in (old, new))
    if before != after:
        raise Rejection(422, "Invalid", "spec: Forbidden: updates may not change fields other than a few")


def _missing_tolerations(given: Any) -> list[Json]:
    known = {one.get("key") for one in given if one.get("effect", "NoExecute") == "NoExecute"}
    keys = [key for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable") if key not in known]
    base = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_S}
    return [{"key": key, **base} for key in keys if None not in known]
