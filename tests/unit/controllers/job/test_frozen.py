"""The frozen template has one digest, in whatever process it is made."""

import json
from typing import Any

import msgspec
import yaml

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.job.template.render import render
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import Kind

SETTINGS = OperatorSettings(image="torchctl:test")


def read(kind: Kind[Any], spec: str) -> Any:
    """An object as a watch brings it: each text of it is a new one."""
    body = json.dumps({"metadata": {"name": "a", "uid": "u"}, "spec": yaml.safe_load(spec)}).encode()
    return msgspec.json.decode(body, type=kind.type, dec_hook=kind.dec_hook)


def test_a_written_default_does_not_change_the_digest() -> None:
    """The API server writes defaults into a spec, and another version of it may write other ones."""
    job = read(TORCHRUN_JOB, "{jobQueue: a, numNodes: 1, command: python a.py}")
    digests = {
        render(job, read(TORCHRUN_QUEUE, queue), SETTINGS).digest()
        for queue in ("image: a:1", "{image: a:1, nodeResources: {gpus: 0, gpuResourceName: nvidia.com/gpu}}")
    }
    assert len(digests) == 1
