"""A null in a queue's podTemplate survives the API server and takes a default away, as OpenShift needs it.

Client-side `kubectl apply` leaves nulls out before it sends anything.
"""

import json
from functools import partial
from typing import Any

import pytest
from jobs import Place, a_queue
from waiting import until

from torchctl.api.kube import JOB, POD
from torchctl.runtime.kinds import Kind
from torchctl.testing.controlplane import ControlPlane

UNSET = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}


async def security_of(place: Place, kind: Kind[Any], name: str) -> dict[str, Any]:
    await until(partial(place.exists, kind, name), timeout_s=30)
    spec = (await place.admin.get_raw(kind, name, place.namespace))["spec"]
    context: dict[str, Any] = (spec if kind is POD else spec["template"]["spec"])["securityContext"]
    return context


@pytest.mark.parametrize("write", [("create",), ("apply", "--server-side")], ids=" ".join)
@pytest.mark.usefixtures("kubelet")
async def test_null_in_the_pod_template_unsets_the_user(
    place: Place, control_plane: ControlPlane, write: tuple[str, ...]
) -> None:
    """The cluster chooses the user of workers and sync pod."""
    name = write[0]
    queue = a_queue(place.namespace, name, podTemplate={"spec": {"securityContext": UNSET}})
    await control_plane.kubectl(*write, "-f-", input=json.dumps(queue))
    code = {"workspace": {"source": "git", "url": "https://git.example.com/a"}}
    await place.job(f"{name}-synced", jobQueue=name, volumes=code)
    await place.job(f"{name}-plain", jobQueue=name)
    expected = {
        "runAsNonRoot": True,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert await security_of(place, JOB, f"{name}-plain") == expected
    assert await security_of(place, POD, f"{name}-synced-sync-0") == expected
