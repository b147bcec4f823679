"""Does in a simulated cluster what a day says."""

from collections.abc import Callable
from functools import partial, singledispatchmethod
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, KAI_PODGROUP, POD, SERVICE
from torchctl.api.labels import JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import TERMINAL, Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.kinds import Key, Kind
from torchctl.testing.fake.objects import Body, Changed, key_of
from torchctl.testing.fleet import NodeSpec
from torchctl.testing.sim.cluster import Cluster
from torchctl.testing.sim.controllers.autoscaler import BROUGHT
from torchctl.testing.sim.days import actions, jobs
from torchctl.testing.sim.days.actions import Action, Day, Fate, Intrude
from torchctl.testing.sim.days.gang import is_let_in
from torchctl.testing.sim.days.losses import Losses
from torchctl.testing.sim.jobs.pods import INDEX
from torchctl.testing.sim.kinds import NODE
from torchctl.testing.sim.replica import Replica

__all__ = ["Doing"]

AGAIN_S = 5.0
SKEW_S = 5.0
"""The most by which a clock is wrong."""

CHILDREN: dict[str, Kind[Any]] = {kind.kind: kind for kind in (JOB, SERVICE, KAI_PODGROUP)}
PERSON = "person"


class Doing:
    """Carries out the actions of a day. What an action names and is not there is left alone."""

    def __init__(self, cluster: Cluster, fates: dict[str, Fate], losses: Losses) -> None:
        self._cluster = cluster
        self._losses = losses
        self._world = cluster.world
        self._fates = fates
        self._chance = cluster.world.chance("doing")
        self._intruders: list[Intrude] = []
        """Those that come with the next job that is let in."""

    def begin(self, day: Day) -> None:
        """Sets the clocks, makes the queues, and puts the day's actions on the agenda."""
        for number in range(len(self._cluster.nodes)):
            self._cluster.kubelets.skew_s[f"node-{number}"] = self._chance.uniform(-SKEW_S, SKEW_S)
        self._queues = jobs.queues(coordinated=day.coordinated)
        for queue in self._queues:
            self._world.create(TORCHRUN_QUEUE, jobs.NAMESPACE, queue)
        self._coordinated = day.coordinated
        self._world.objects.listeners.append(self._see)
        for action in day.actions:
            self._world.agenda.after(action.at_s, lambda action=action: self._do(action))  # type: ignore[misc]  # bound

    def tidy_up(self) -> None:
        """Ends all trouble: nodes answer, as many as there were, queues are as they were, and suspended jobs go on."""
        self._world.away = False
        for replica in self._cluster.replicas:
            replica.wire.loses, replica.wire.parted = 0.0, False
        for node in sorted(self._cluster.kubelets.silent):
            self._cluster.kubelets.restore(node)
        there = sum(BROUGHT not in node["metadata"]["labels"] for node in self._world.all(NODE))
        for number in range(len(self._cluster.nodes) - there):
            self._cluster.add_node(NodeSpec(name=f"spare-{number}"))
        for queue in self._queues:
            self._adjust(queue["metadata"]["name"], **queue["spec"])
        for job in self._world.all(TORCHRUN_JOB):
            self._edit(job["metadata"]["name"], suspend=False)

    def delete_waiting(self) -> None:
        """Deletes the jobs that wait for other jobs, which may never end as they should."""
        for job in self._world.all(TORCHRUN_JOB):
            conditions = {one["type"]: one["status"] for one in job.get("status", {}).get("conditions", ())}
            if conditions.get("DependenciesMet") != "True" and job["spec"].get("dependsOn"):
                self._world.delete(TORCHRUN_JOB, key_of(job))

    def delete_queues(self) -> None:
        """Deletes all queues, whose jobs have ended."""
        for queue in self._world.all(TORCHRUN_QUEUE):
            self._world.delete(TORCHRUN_QUEUE, key_of(queue))

    def _do(self, action: Action) -> None:
        if self._world.away:
            self._world.agenda.after(AGAIN_S, lambda: self._do(action))
        else:
            self._act(action)

    @singledispatchmethod
    def _act(self, action: Action) -> None:
        raise NotImplementedError(type(action).__name__)

    # People.

    @_act.register
    def _(self, action: actions.Submit) -> None:
        if self._world.find(TORCHRUN_JOB, _key(action.job)) is None:
            self._fates[action.job] = action.fate
            self._world.create(TORCHRUN_JOB, jobs.NAMESPACE, jobs.job(action))

    @_act.register
    def _(self, action: actions.Suspend) -> None:
        self._edit(action.job, suspend=True)

    @_act.register
    def _(self, action: actions.Resume) -> None:
        self._edit(action.job, suspend=False)

    @_act.register
    def _(self, action: actions.Scale) -> None:
        found = self._world.find(TORCHRUN_JOB, _key(action.job))
        if found is not None and "elastic" in found["spec"]:
            self._edit(action.job, numNodes=action.nodes)

    @_act.register
    def _(self, action: actions.Prioritise) -> None:
        self._edit(action.job, priority=action.priority)

    @_act.register
    def _(self, action: actions.LoseStatus) -> None:
        key, until_s = _key(action.job), self._world.now_s - action.age_s if action.age_s else None
        found = self._world.find(TORCHRUN_JOB, key)
        phase = None if found is None else found.get("status", {}).get("phase")
        if found is not None and (phase == Phase.RUNNING or (phase in TERMINAL and until_s is None)):
            write = partial(self._world.report, TORCHRUN_JOB, key, manager=PERSON)
            self._losses.lose(found["metadata"]["uid"], until_s, write)

    @_act.register
    def _(self, action: actions.AdjustQueue) -> None:
        self._adjust(action.queue, weight=action.weight, quota={"gpus": action.gpus})

    @_act.register
    def _(self, action: actions.Delete) -> None:
        if self._world.find(TORCHRUN_JOB, _key(action.job)) is not None:
            self._world.delete(TORCHRUN_JOB, _key(action.job))

    @_act.register
    def _(self, action: actions.DeleteChild) -> None:
        for child in self._world.all(CHILDREN[action.kind]):
            if child["metadata"].get("labels", {}).get(JOB_NAME) == action.job:
                self._world.delete(CHILDREN[action.kind], key_of(child))

    @_act.register
    def _(self, action: actions.DeletePod) -> None:
        pod = self._worker(action.job, action.index)
        if pod is not None:
            options = {"gracePeriodSeconds": 0} if action.by_force else {}
            self._world.delete(POD, key_of(pod), **options)

    # Trouble on nodes.

    @_act.register
    def _(self, action: actions.Fail) -> None:
        pod = self._worker(action.job, action.index)
        if pod is not None:
            self._cluster.kubelets.fail(pod["metadata"]["uid"], action.exit_code, action.reason or None)

    @_act.register
    def _(self, action: actions.Evict) -> None:
        pod = self._worker(action.job, action.index)
        if pod is not None:
            self._cluster.kubelets.evict(pod["metadata"]["uid"], "The node was low on resource: memory.")

    @_act.register
    def _(self, action: actions.LoseNode) -> None:
        kubelets = self._cluster.kubelets
        if action.node not in kubelets.silent:
            kubelets.lose(action.node)
            self._later(action.for_s, lambda: kubelets.restore(action.node))

    @_act.register
    def _(self, action: actions.RemoveNode) -> None:
        if self._world.find(NODE, Key("", action.node)) is not None:
            self._cluster.remove_node(action.node)

    @_act.register
    def _(self, action: actions.AddNode) -> None:
        if self._world.find(NODE, Key("", action.node)) is None:  # nodes that went in one second have one name
            self._cluster.add_node(NodeSpec(name=action.node))

    @_act.register
    def _(self, action: Intrude) -> None:
        if self._coordinated:
            self._intruders.append(action)
        else:
            self._intrude(action)

    # Trouble of the operator.

    @_act.register
    def _(self, action: actions.KillLeader) -> None:
        leader = next(iter(self._cluster.leaders), None)
        if leader is not None:
            leader.kill()
            self._later(action.back_s, self._start_replica)

    @_act.register
    def _(self, action: actions.StopLeader) -> None:
        leader = next(iter(self._cluster.leaders), None)
        if leader is not None:
            self._start_replica()
            leader.stop()

    @_act.register
    def _(self, action: actions.Part) -> None:
        leader = next(iter(self._cluster.leaders), None)
        if leader is not None:
            leader.wire.parted = True
            self._later(action.for_s, lambda: self._join(leader))

    @_act.register
    def _(self, action: actions.BreakWatches) -> None:
        self._world.server.break_watches()

    @_act.register
    def _(self, action: actions.Compact) -> None:
        self._world.server.compact()
        self._world.server.break_watches()

    @_act.register
    def _(self, action: actions.Outage) -> None:
        self._world.away = True
        self._world.server.break_watches()
        self._later(action.for_s, self._answer_again)

    @_act.register
    def _(self, action: actions.LoseAnswers) -> None:
        self._lose_answers(action.share)
        self._later(action.for_s, lambda: self._lose_answers(0.0))

    def _see(self, changed: Changed) -> None:
        """Lets somebody else's pods come at once when a job is let in."""
        self._losses.on_change(changed, self._world.now_s)
        let_in = changed.served.kind == TORCHRUN_JOB and is_let_in(changed.new) and not is_let_in(changed.old or {})
        if let_in and self._intruders:
            intruder = self._intruders.pop(0)
            self._later(0.0, lambda: self._intrude(intruder))

    def _intrude(self, action: Intrude) -> None:
        for pod in jobs.intruders(action):
            self._world.create(POD, jobs.OTHERS, pod)

    def _start_replica(self) -> None:
        self._cluster.start_replica(skew_s=self._chance.uniform(-SKEW_S, SKEW_S))

    def _join(self, replica: Replica) -> None:
        replica.wire.parted = False

    def _answer_again(self) -> None:
        self._world.away = False

    def _lose_answers(self, share: float) -> None:
        for replica in self._cluster.replicas:
            replica.wire.loses = share

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._world.agenda.after(seconds, act)

    def _edit(self, name: str, **fields: Any) -> None:
        found = self._world.find(TORCHRUN_JOB, _key(name))
        if found is not None and found.get("status", {}).get("phase") not in TERMINAL:
            self._set(TORCHRUN_JOB, name, {"suspend": False, **found["spec"]}, fields)

    def _adjust(self, name: str, **fields: Any) -> None:
        found = self._world.find(TORCHRUN_QUEUE, _key(name))
        if found is not None:
            self._set(TORCHRUN_QUEUE, name, found["spec"], fields)

    def _set(self, kind: Kind[Any], name: str, spec: Body, fields: Body) -> None:
        if spec != spec | fields:
            self._world.change(kind, _key(name), lambda old: {**old, "spec": {**old["spec"], **fields}}, manager=PERSON)

    def _worker(self, job: str, index: int) -> Body | None:
        """Returns the pod of that index, of the latest attempt."""
        found = [
            pod
            for pod in self._world.all(POD)
            if pod["metadata"].get("labels", {}).get(JOB_NAME) == job
            and pod["metadata"]["labels"].get(ROLE) == ROLE_WORKER
            and pod["metadata"].get("annotations", {}).get(INDEX) == str(index)
        ]
        return max(found, key=lambda pod: int(pod["metadata"]["resourceVersion"]), default=None)


def _key(job: str) -> Key:
    return Key(jobs.NAMESPACE, job)
