"""podFailurePolicy and successPolicy of a Job. Pure."""

from collections.abc import Iterable
from typing import Any

from torchctl.testing.sim.jobs import indexes
from torchctl.testing.sim.jobs.pods import Worker

__all__ = ["counts", "fail_message", "is_met", "met_message"]

Json = dict[str, Any]


def counts(policy: Json | None, pod: Worker) -> bool:
    """Tells if the failure of a pod counts towards the backoffLimit."""
    rule = _first(policy, pod)
    return rule is None or rule[1]["action"] != "Ignore"


def fail_message(policy: Json | None, pods: Iterable[Worker], namespace: str) -> str:
    """Returns why the Job must fail because of its podFailurePolicy, "" if it must not."""
    for pod in pods:
        rule = _first(policy, pod) if pod.phase == "Failed" else None
        if rule is not None and rule[1]["action"] == "FailJob":
            return f"{_told(rule[1], pod, namespace)} matching FailJob rule at index {rule[0]}"
    return ""


def is_met(policy: Json | None, completions: int, succeeded: frozenset[int]) -> int | None:
    """Returns the number of the first rule of a successPolicy that is met, None if none is."""
    for number, rule in enumerate((policy or {}).get("rules", ())):
        named = rule.get("succeededIndexes")
        wanted = frozenset(range(completions)) if named is None else indexes.parse(named)
        least = rule.get("succeededCount", len(wanted))
        if len(succeeded & wanted) >= least:
            return number
    return None


def met_message(rule: int) -> str:
    return f"Matched rules at index {rule}"


def _first(policy: Json | None, pod: Worker) -> tuple[int, Json] | None:
    """Returns the first rule that the failed pod matches, with its number."""
    for number, rule in enumerate((policy or {}).get("rules", ())):
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes is not None and _matches_code(codes, pod):
            return number, rule
        if conditions and any(pod.conditions.get(one["type"]) == one.get("status", "True") for one in conditions):
            return number, rule
    return None


def _matches_code(rule: Json, pod: Worker) -> bool:
    return _code(rule, pod) is not None


def _code(rule: Json, pod: Worker) -> tuple[str, int] | None:
    wanted = set(rule["values"])
    for name, code in pod.exit_codes.items():
        if code and rule.get("containerName", name) == name and (code in wanted) == (rule["operator"] == "In"):
            return name, code
    return None


def _told(rule: Json, pod: Worker, namespace: str) -> str:
    if "onExitCodes" in rule and (found := _code(rule["onExitCodes"], pod)) is not None:
        return f"Container {found[0]} for pod {namespace}/{pod.name} failed with exit code {found[1]}"
    wanted = {one["type"]: one.get("status", "True") for one in rule["onPodConditions"]}
    type_ = next(name for name, status in wanted.items() if pod.conditions.get(name) == status)
    return f"Pod {namespace}/{pod.name} has condition {type_}"
