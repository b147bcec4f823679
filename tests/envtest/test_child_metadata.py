"""A cluster whose policies demand a label of everything: all children of a job have what its user wrote."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
import yaml
from clusters import clear
from jobs import Place
from operators import background_operator
from waiting import until

from torchctl.api.kube import CONTROLLER_REVISION, JOB, POD, PVC, SERVICE
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import CommandFailed, ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: HERE-labels}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE],
         resources: [pods, services, persistentvolumeclaims]}
      - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [controllerrevisions]}
      - {apiGroups: [batch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [jobs]}
  validations:
    - {expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: label team is missing}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: HERE-labels}
spec:
  policyName: HERE-labels
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: HERE}}}
"""
GIT = {"source": "git", "url": "https://git.example.com/team/code.git"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(
    control_plane: ControlPlane, operator_account: Connection, admin: Client, kubelet: ScriptedKubelet
) -> AsyncGenerator[Place]:
    namespace = fresh_name("child-metadata")
    await create_namespace(admin, namespace)
    policy = POLICY.replace("HERE", namespace)
    await control_plane.kubectl("apply", "-f-", input=policy)

    async def in_force() -> bool:
        pod = ("run", "unlabelled", "--image=main:1", f"--namespace={namespace}", "--dry-run=server", "--labels=a=b")
        try:
            await control_plane.kubectl(*pod)
        except CommandFailed as refused:
            return "label team is missing" in str(refused)
        return False

    await until(in_force)
    async with background_operator(operator_account, namespace):
        yield Place(admin, namespace)
    await clear(admin, namespace)
    for document in yaml.safe_load_all(policy):
        await control_plane.kubectl("delete", document["kind"], document["metadata"]["name"], "--wait=false")


@pytest.mark.proves("TorchrunJob.spec.labels", "TorchrunJob.spec.annotations")
async def test_every_child_passes_a_policy_that_demands_a_label(place: Place) -> None:
    await place.queue("kept", storage={"checkpoints": {"enabled": True}})
    mine = {"labels": {"team": "vision"}, "annotations": {"example.com/cost": "7"}}
    await place.job("labelled", jobQueue="kept", volumes={"workspace": GIT}, **mine)
    await place.reaches(Phase.SUCCEEDED, "labelled")
    of_job = "torchrun.ai/job-name=labelled"
    found = {
        kind.kind: await place.admin.list(kind, namespace=place.namespace, labels=of_job)
        for kind in (POD, SERVICE, PVC, CONTROLLER_REVISION, JOB)
    }
    assert {kind: len(items) > 0 for kind, items in found.items()} == dict.fromkeys(found, True)
    for kind, items in found.items():
        wanted = None if kind in (SERVICE.kind, CONTROLLER_REVISION.kind) else "7"
        assert {item.metadata.annotations.get("example.com/cost") for item in items} == {wanted}, kind
