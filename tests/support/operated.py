"""Carries out the operator's plans for a job, one reconcile at a time."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
from inmemory import InMemoryCluster

from torchctl.api.kueue import KueueWorkloadSpec
from torchctl.api.labels import KUEUE_PAUSED
from torchctl.controllers.job.actions import Halt, Pause
from torchctl.controllers.job.plan import plan
from torchctl.controllers.job.status import derive, transitions

__all__ = ["Operated"]


class Operated(InMemoryCluster):
    """A job with an operator: `step()` is one reconcile, whose children are simply there afterwards."""

    def step(self) -> bool:
        """One reconcile; whether it changed anything."""
        observed = self.seen
        self.last = plan(observed, self.settings, self.now)
        refusals, changed = [], False
        for stage in self.last.actions.stages:
            for child in stage:
                refusal = self.refuse(child.kind.kind, child.name)
                if refusal is not None:
                    refusals.append(refusal)
                else:
                    made = (child.kind.kind, child.name) in self.objects
                    changed |= self._apply(child.kind, child.body if made or child.first is None else child.first)
            if refusals:
                break
        for removal in self.last.actions.remove:
            self.remove(removal.kind.kind, removal.key.name)
            changed = True
        for halt in self.last.actions.halt:
            self._halt(halt)
            changed = True
        for pause in self.last.actions.pause:
            self._pause(pause)
            changed = True
        status = derive(observed, self.last, tuple(refusals), self.now)
        if status != observed.job.status:
            self.events += transitions(observed.job.status, status)
            changed = True
            self.log.append(status.phase)
        job = msgspec.structs.replace(self.seen.job, status=status)
        if status.attempt != observed.job.status.attempt:
            self._begin_next()
        self.seen = replace(self.seen, job=job)
        if status.queue_revision != observed.job.status.queue_revision:
            self._look_for_revisions()
        return changed

    def _halt(self, halt: Halt) -> None:
        """The pod has a deadline; that it ends is for the test to say."""
        fields: dict[str, Any] = {}
        for field in ("pods", "old_pods", "sync_pods"):
            fields[field] = tuple(
                msgspec.structs.replace(
                    pod, spec=msgspec.structs.replace(pod.spec, active_deadline_seconds=halt.deadline_s)
                )
                if pod.metadata.uid == halt.uid
                else pod
                for pod in getattr(self.seen, field)
            )
        self.seen = replace(self.seen, **fields)

    def _pause(self, pause: Pause) -> None:
        marks = {KUEUE_PAUSED: "true"} if pause.paused else {}
        fields: dict[str, Any] = {}
        for field in ("workloads", "old_workloads"):
            fields[field] = tuple(
                msgspec.structs.replace(
                    one,
                    metadata=msgspec.structs.replace(one.metadata, annotations=marks),
                    spec=KueueWorkloadSpec(active=not pause.paused),
                )
                if one.metadata.uid == pause.uid
                else one
                for one in getattr(self.seen, field)
            )
        self.seen = replace(self.seen, **fields)

    def _begin_next(self) -> None:
        """What was of the attempt is of an earlier one."""
        seen = self.seen
        self.seen = replace(
            seen,
            worker_job=None,
            workloads=(),
            old_workloads=(*seen.old_workloads, *seen.workloads),
            pods=(),
            podgroup=None,
            old_jobs=(*seen.old_jobs, *filter(None, (seen.worker_job,))),
            old_pods=(*seen.old_pods, *seen.pods),
            old_groups=(*seen.old_groups, *((seen.podgroup,) if seen.podgroup is not None else ())),
        )

    def settle(self, limit: int = 20) -> None:
        """Reconciles until nothing changes any more; more than `limit` times is a hot loop."""
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError(f"no rest after {limit} reconciles: {self.log}")

    def forget(self) -> None:
        """The status as the API server gives it back: through JSON."""
        raw = msgspec.to_builtins(self.status)
        status = msgspec.convert(raw, type(self.status))
        self.seen = replace(self.seen, job=msgspec.structs.replace(self.seen.job, status=status))

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
