"""Whatever queue and job the API server accepts, it accepts what the operator makes of them too, or a condition has
said what is wrong before anything was made.

Not so for what a person writes in Kubernetes' own words and the operator hands on as it is (podTemplate, affinity,
what a variable's valueFrom and an envFrom's Secret or ConfigMap say, additional volumes): there the API server's
refusal is the condition `Refused` (test_bad_input.py).
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from jobs import Place
from waiting import until
from watching import running

from torchctl.api.conditions import JobReason
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import JOB
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.change import Change
from torchctl.runtime.client.errors import Invalid
from torchctl.runtime.conditions import find

Json = dict[str, Any]
Draw = Callable[[random.Random], Any]

PAIRS = 120
SEED = 1
SAID = 0.35
"""How likely a field is said."""
ODD = 0.03
"""How likely a word is one that may be refused."""
MADE = 0.3
"""Share of the pairs of which workers must come at least: else too little is tried."""
UNDECIDED, MADE_IT, NO_NODE = "", "made", "no node has these labels"


def one(*values: Any) -> Draw:
    return lambda chance: chance.choice(values)


def mostly(usual: Draw, odd: Draw) -> Draw:
    return lambda chance: (odd if chance.random() < ODD else usual)(chance)


def some(**fields: Draw) -> Draw:
    """An object with any of these fields."""
    return lambda chance: {name: draw(chance) for name, draw in fields.items() if chance.random() < SAID}


def whole(**fields: Draw) -> Draw:
    """An object with all of these fields."""
    return lambda chance: {name: draw(chance) for name, draw in fields.items()}


def maps(keys: Draw, values: Draw) -> Draw:
    return lambda chance: {keys(chance): values(chance) for _ in range(chance.randint(0, 3))}


def named(item: Draw) -> Draw:
    """A list of objects, no two of the same name."""

    def draw(chance: random.Random) -> list[Json]:
        drawn = [item(chance) for _ in range(chance.randint(1, 3))]
        return list({each["name"]: each for each in drawn}.values())

    return draw


def listed(item: Draw) -> Draw:
    return lambda chance: [item(chance) for _ in range(chance.randint(0, 2))]


def subset(*values: str) -> Draw:
    return lambda chance: chance.sample(values, chance.randint(1, len(values)))


AMOUNTS = one(1, 3, "1", "0.1", "500m", "1500m", "1e3", "1Ki", "0.5Gi", "1.5Ti", "123456789", "1E")
SIZES = one(1, "1", "100m", "1e3", "1Gi", "0.5Gi", "1.5Ti", "123456789")
PATHS = one("/a", "/app", "/app/", "/app/data", "/checkpoints", "/dev/shm", "/workspace", "/a/../b", "/tmp", "/ä b")
NAMES = one("a", "shm", "code", "workspace", "checkpoints", "torchrun-checkpoints", "torchrun-workspace", "0", "x" * 63)
CLAIMS = one("a", "shared.claim", "x" * 253)
WORDS = one("", "a", "0", "-", "a b", "ä", "$(A)", "$$(A)", "'\"\\", "x" * 300, "a\nb", "{}", "a=b,c=d")
KEYS = mostly(
    one("team", "example.com/Team", "x" * 63, "a.b-c_d", f"{'x.' * 126}x/{'y' * 63}"), one("a b", "", "/a", "x" * 64)
)
LABELS = maps(KEYS, one("", "a", "A.b_c-9", "x" * 63))
MODES = mostly(
    subset("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"),
    subset("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"),
)
VARIABLES = mostly(one("A", "b.c", "_", "A-B", ".a", "x" * 256), one(".", "..a", "1"))
TOLERATIONS = listed(
    mostly(
        one(
            {"operator": "Exists"},
            {"key": "example.com/a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0},
            {"key": "a", "operator": "Exists", "value": "", "effect": "PreferNoSchedule"},
        ),
        some(
            key=one("a", "a b"),
            operator=one("Exists", "Equal"),
            value=one("", "b", "b c"),
            effect=one("NoSchedule", "NoExecute"),
            tolerationSeconds=one(0, 60),
        ),
    )
)
SOURCES = listed(
    mostly(
        one({"prefix": "A_", "configMapRef": {"name": "a", "optional": True}}, {"secretRef": {"name": "a"}}),
        some(prefix=one("", "A_", "1"), configMapRef=one({"name": "a"}), secretRef=one({"name": "a"})),
    )
)
NUMBERS = one(0, 1, 3, 2**31 - 1)
LONG = one(600, 2**31 - 1)
YES_OR_NO = one(True, False)

CHECKPOINTS = some(
    enabled=YES_OR_NO, size=SIZES, sizePerGPU=SIZES, accessModes=MODES, claimName=CLAIMS, mountPath=PATHS
)
DATASETS = named(whole(name=NAMES, claimName=CLAIMS, mountPath=PATHS, readOnly=YES_OR_NO))
BOTH: dict[str, Draw] = {
    "image": one("a", "a:1", "registry.example.com:5000/a/b@sha256:" + "0" * 64, "x" * 1024),
    "env": named(whole(name=VARIABLES, value=WORDS)),
    "envFrom": SOURCES,
    "distributed": some(
        backend=one("nccl", "gloo", "mpi"),
        rdzvBackend=one("c10d", "etcd", "etcd-v2", "static"),
        rdzvEndpoint=one("a", "a.example.com:1", "[::1]:2379", "10.0.0.1:65535", "A_b"),
        rdzvConf=maps(one("read_timeout", "join_timeout", "a b", ""), one("", "9", "a b", "ä")),
        port=one(1024, 29500, 65535),
    ),
    "runPolicy": some(
        maxRestarts=NUMBERS,
        maxWorkerRestarts=NUMBERS,
        restartPolicy=one("OnFailure", "Never", "ExitCode"),
        activeDeadlineSeconds=LONG,
        startupTimeoutSeconds=LONG,
        podRetention=one("Failed", "All"),
    ),
}
QUEUES = some(
    **BOTH,
    nodeResources=some(
        gpus=one(0, 1, 2, 8, 1024),
        cpus=AMOUNTS,
        memory=AMOUNTS,
        gpuType=one("a", "A.b_c-9", "x" * 63),
        gpuResourceName=one("nvidia.com/gpu", "amd.com/gpu", "example.com/GPU.a"),
    ),
    imagePullSecrets=subset("a", "a.b", "x" * 253),
    scheduling=some(nodeSelector=LABELS, tolerations=TOLERATIONS, gang=YES_OR_NO, scheduler=one("a.b")),
    storage=some(
        shmSizePerGPU=SIZES,
        workspace=some(
            enabled=YES_OR_NO,
            size=SIZES,
            sizePerGPU=SIZES,
            accessModes=MODES,
            mountPath=PATHS,
            distribution=one("auto", "shared", "copy", "serve"),
        ),
        datasets=DATASETS,
        checkpoints=CHECKPOINTS,
    ),
)
SHAPES = one(
    {"numNodes": 1},
    {"numNodes": 3},
    {"numNodes": 2, "elastic": {"minNodes": 1, "maxNodes": 1000}},
    {"numNodes": None, "numGPUs": 0},
    {"numNodes": None, "numGPUs": 3},
    {"numNodes": None, "numGPUs": 16},
)
COMMANDS = one(
    {"command": "python a.py"},
    {"command": "x" * 32768},
    {"command": "a\n'\"$(B) ä"},
    {"command": None, "args": ["python", "", "$(A)", "ä"]},
)
OTHERS = some(
    **BOTH,
    setupCommand=one("a", "a;\nb"),
    workingDir=PATHS,
    launcher=one("torchrun", "none"),
    nprocPerNode=one(1, 1024),
    labels=LABELS,
    annotations=maps(KEYS, WORDS),
    nodeSelector=LABELS,
    tolerations=TOLERATIONS,
    volumes=some(
        workspace=one(
            {"enabled": False},
            {"enabled": True},
            {"source": "git", "url": "https://git.example.com/a"},
            {"source": "git", "url": "ssh://git@git.example.com/a", "ref": "v1", "subPath": "a b/ä", "secretRef": "b"},
            {"source": "zip", "url": "https://a.example.com/" + "x" * 2000, "size": "1"},
            {"source": "s3", "url": "s3://bucket/a/", "timeoutSeconds": 86_400},
        ),
        datasets=DATASETS,
        checkpoints=CHECKPOINTS,
    ),
)


def drawn() -> dict[str, tuple[Json, Json]]:
    """Specs of a queue and of a job, by the name that both have."""
    chance = random.Random(SEED)
    return {
        f"pair-{number}": (QUEUES(chance), SHAPES(chance) | COMMANDS(chance) | OTHERS(chance))
        for number in range(PAIRS)
    }


async def accepted(place: Place, name: str, queue: Json, job: Json) -> bool:
    """Submits both, unless the API server refuses one of them."""
    try:
        await place.queue(name, **queue)
        await place.job(name, **{**job, "jobQueue": name})
    except Invalid:
        return False
    return True


def verdict(job: TorchrunJob) -> str:
    """What a job says of why its workers' Job is not made."""
    conditions = job.status.conditions
    refused = [it.message for it in conditions if it.reason == JobReason.REFUSED]
    told, workspace = find(conditions, "Accepted"), find(conditions, "WorkspaceReady")
    if refused:
        return refused[0]
    if workspace is not None and workspace.reason == JobReason.UNSCHEDULABLE:
        return NO_NODE
    return told.reason if told is not None and told.status == "False" else UNDECIDED


class Verdicts:
    """What became of each job first, by its name: its workers' Job was made, or why not."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}

    def on_event(self, change: Change[Any]) -> None:
        job = change.object
        word = verdict(job) if isinstance(job, TorchrunJob) else MADE_IT
        if word != UNDECIDED:
            self.first.setdefault(job.metadata.name, word)


@pytest.mark.usefixtures("kubelet")
async def test_accepted_specs_yield_accepted_children(place: Place) -> None:
    pairs, verdicts, cache, taken = drawn(), Verdicts(), Cache(place.admin), set[str]()
    cache.register(TORCHRUN_JOB, namespace=place.namespace).add_handler(verdicts)
    cache.register(JOB, namespace=place.namespace).add_handler(verdicts)

    async def submit(name: str, queue: Json, job: Json) -> None:
        if await accepted(place, name, queue, job):
            taken.add(name)

    async def are_judged() -> bool:
        return taken <= verdicts.first.keys()

    async with running(cache, within_s=180.0):
        async with anyio.create_task_group() as tasks:
            for name, pair in pairs.items():
                tasks.start_soon(submit, name, *pair)
        await until(are_judged, timeout_s=120)
    found = Counter(verdicts.first.values())
    wrong = [
        (word, *pairs[name]) for name, word in verdicts.first.items() if word not in (MADE_IT, NO_NODE, *JobReason)
    ]
    assert wrong == []
    assert found[MADE_IT] > MADE * PAIRS, found
