"""Volcano's PodGroups on the real API server, without Volcano: refused, written into, changed by people."""

import pytest
import yaml
from clusters import install_volcano
from gangcluster import told
from jobs import Place
from waiting import until

from torchctl.api.kube import JOB
from torchctl.api.phases import Phase
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE, VolcanoPodGroup
from torchctl.testing.controlplane import CommandFailed, ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet

pytestmark = pytest.mark.usefixtures("kubelet")

REFUSAL = "unable to find queue: train"
"""As Volcano's webhook says it."""
POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: HERE-volcano}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [scheduling.volcano.sh], apiVersions: [v1beta1], operations: [CREATE], resources: [podgroups]}
  validations:
    - {expression: "object.spec.queue != 'train'", message: "unable to find queue: train"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: HERE-volcano}
spec:
  policyName: HERE-volcano
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: HERE}}}
"""


async def group_in(place: Place, job: str) -> VolcanoPodGroup:
    async def look() -> VolcanoPodGroup | None:
        every = await place.admin.list(VOLCANO_PODGROUP, namespace=place.namespace)
        return next((group for group in every if group.metadata.name.startswith(f"pg-{job}-")), None)

    found = await until(look)
    assert found is not None
    return found


async def test_refused_pod_group_is_tried_again(
    place: Place, control_plane: ControlPlane, kubelet: ScriptedKubelet
) -> None:
    """The webhook's message is the condition's, and no pod is made before it gives way."""
    await install_volcano(control_plane)
    policy = POLICY.replace("HERE", place.namespace)
    await control_plane.kubectl("apply", "-f-", input=policy)
    body = {"apiVersion": VOLCANO_PODGROUP.api_version, "kind": "PodGroup", "spec": {"minMember": 1, "queue": "train"}}
    probe = yaml.safe_dump(body | {"metadata": {"name": "probe", "namespace": place.namespace}})

    async def is_in_force() -> bool:
        try:
            await control_plane.kubectl("create", "-f-", "--dry-run=server", input=probe)
        except CommandFailed as refused:
            return REFUSAL in str(refused)
        return False

    await until(is_in_force)
    await place.queue("train", scheduling={"volcanoQueue": "train"})
    await place.job("refused", jobQueue="train")
    found = await place.condition("Admitted", "Refused", "refused")
    assert REFUSAL in found.message
    assert not await place.exists(JOB, "refused")
    for document in yaml.safe_load_all(policy):
        await control_plane.kubectl("delete", document["kind"], document["metadata"]["name"], "--wait=false")

    async def goes_on() -> bool:
        await place.touch("refused")
        return await place.exists(JOB, "refused")

    await until(goes_on, timeout_s=60)
    await place.reaches(Phase.SUCCEEDED, "refused", timeout_s=60)


async def test_status_that_volcano_writes_costs_no_write_of_ours(place: Place) -> None:
    """Its PodGroup has no status subresource: a status is a new generation. What a person changes is changed back."""
    train = {"apiVersion": VOLCANO_QUEUE.api_version, "kind": "Queue", "metadata": {"name": "costs-nothing"}}
    await place.admin.create(VOLCANO_QUEUE, train | {"spec": {"weight": 1}})
    await place.queue("huge", scheduling={"volcanoQueue": "costs-nothing"}, nodeResources={"gpus": 999})
    await place.job("waits", jobQueue="huge")
    group = await group_in(place, "waits")
    name, namespace = group.metadata.name, place.namespace
    for words in ("1 Pending", "2 Pending"):
        condition = {"type": "Unschedulable", "status": "True", "message": words}
        status = {"phase": "Inqueue", "conditions": [condition | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        written = await place.admin.merge_patch(VOLCANO_PODGROUP, name, {"status": status}, namespace=namespace)
        said = await told(place, "Admitted", words, "waits")
        assert said.message == f"PodGroup {name}: {words}"
        now = await place.admin.get(VOLCANO_PODGROUP, name, namespace)
        assert now.metadata.resource_version == written.metadata.resource_version
    await place.admin.merge_patch(VOLCANO_PODGROUP, name, {"spec": {"minMember": 1}}, namespace=namespace)

    async def is_changed_back() -> bool:
        return bool((await place.admin.get(VOLCANO_PODGROUP, name, namespace)).spec["minMember"] == 2)

    await until(is_changed_back)
