"""Whatever stands in a podTemplate: the queue is told what is wrong with it, or it can be merged."""

from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from world import World

from torchctl.api.queue import QueueSpec
from torchctl.controllers.job.template.errors import Impossible
from torchctl.controllers.job.template.render import render
from torchctl.controllers.queuespec.validate import problem_of
from torchctl.controllers.settings import OperatorSettings

SETTINGS = OperatorSettings(image="torchctl:test")

scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.sampled_from(["", "8", "4Gi", "x", "name"]))
keys = st.sampled_from(
    ["name", "mountPath", "limits", "requests", "cpu", "nvidia.com/gpu", "add", "runAsUser", "claims"]
)
anything = st.recursive(
    scalars, lambda below: st.lists(below, max_size=2) | st.dictionaries(keys, below, max_size=3), max_leaves=8
)
IN_CONTAINER = ("args", "env", "envFrom", "image", "resources", "volumeMounts", "workingDir")
IN_POD = (
    "affinity",
    "hostNetwork",
    "imagePullSecrets",
    "initContainers",
    "nodeSelector",
    "securityContext",
    "serviceAccountName",
    "tolerations",
    "volumes",
)
capabilities = st.fixed_dictionaries({"capabilities": anything})
containers = st.fixed_dictionaries(
    {"name": st.just("trainer")},
    optional=dict.fromkeys(IN_CONTAINER, anything) | {"securityContext": anything | capabilities},
)
specs = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(IN_POD, anything) | {"containers": st.lists(containers, min_size=1, max_size=1)},
)


@given(spec=specs)
def test_a_pod_template_is_refused_with_its_reason_or_merged(world: type[World], spec: dict[str, Any]) -> None:
    w = world("{jobQueue: research, numNodes: 2, command: python a.py}")
    queue = msgspec.structs.replace(
        w.queue, spec=QueueSpec.model_validate({"image": "a:1", "podTemplate": {"spec": spec}})
    )
    problem = problem_of(queue, None)
    if problem is not None:
        assert "spec.podTemplate.spec" in problem[1]
        return
    with suppress(Impossible):
        render(w.seen.job, queue, SETTINGS)
