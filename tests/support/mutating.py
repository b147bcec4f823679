"""Admission that changes every pod of a namespace, as injectors of sidecars and gates do."""

__all__ = ["mutating_policy"]

_POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  matchConditions: [{name: asks, expression: "CONDITION"}]
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >
          CHANGE
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
"""


def mutating_policy(namespace: str, change: str, *, condition: str = "true") -> str:
    """Returns the manifests, for kubectl.

    Args:
        change: A CEL expression that makes the apply configuration.
        condition: A CEL expression that says of which pods.
    """
    return _POLICY.replace("NAMESPACE", namespace).replace("CONDITION", condition).replace("CHANGE", change)
