"""The operator asks for little, and for nothing that leads to more."""

from torchctl.controllers.rbac import JOB_CONTROLLER, QUEUE_CONTROLLER, RUNTIME, leader_election, policy

CLUSTER = policy((*RUNTIME, *QUEUE_CONTROLLER, *JOB_CONTROLLER))


def test_nothing_is_granted_by_wildcard() -> None:
    assert not any("*" in value for rule in CLUSTER for values in rule.values() for value in values)


def test_nothing_that_leads_to_more_rights_is_granted() -> None:
    resources = {resource for rule in CLUSTER for resource in rule["resources"]}
    verbs = {verb for rule in CLUSTER for verb in rule["verbs"]}
    groups = {group for rule in CLUSTER for group in rule["apiGroups"]}
    assert not resources & {"secrets", "pods/exec", "pods/attach", "serviceaccounts", "serviceaccounts/token", "nodes"}
    assert not verbs & {"escalate", "bind", "impersonate", "deletecollection"}
    assert not groups & {"rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"}


def test_leases_are_reached_in_one_namespace_and_by_name() -> None:
    assert not any("leases" in rule["resources"] for rule in CLUSTER)
    unnamed = [rule["verbs"] for rule in policy(leader_election("x")) if "resourceNames" not in rule]
    assert unnamed == [["create"]]


def test_each_resource_has_one_rule_with_all_its_verbs() -> None:
    resources = [(rule["apiGroups"][0], rule["resources"][0]) for rule in CLUSTER]
    assert len(resources) == len(set(resources))
    (queues,) = (rule for rule in CLUSTER if rule["resources"] == ["torchrunqueues"])
    assert queues["verbs"] == ["list", "patch", "watch"]
