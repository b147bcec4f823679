"""Converts a node's report of a pod to the status that a kubelet would write. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchctl.testing.nodekinds import Container, Pod
from torchctl.testing.script import Done, PodReport, Running, State, Waiting

__all__ = ["Record", "status_of"]

JSON = dict[str, Any]
NODE_IP = "127.0.0.1"


@dataclass(slots=True)
class Record:
    """The state of a pod that a node keeps between two reports.

    Attributes:
        ip: The pod's address.
        bound_at: The time when the node first saw it.
        started: The start times of its containers, by name.
        ended: Their end times.
        changed: Its conditions' last values and the times of their last changes.
    """

    ip: str
    bound_at: datetime
    started: dict[str, datetime] = field(default_factory=dict)
    ended: dict[str, datetime] = field(default_factory=dict)
    changed: dict[str, tuple[bool, datetime]] = field(default_factory=dict)


def status_of(pod: Pod, report: PodReport, record: Record, now: datetime) -> JSON:
    """Returns the status fields that a node owns, for server-side apply, and updates `record` for later reports."""
    init = [
        _container(*pair, record, now, init=True) for pair in zip(pod.spec.init_containers, report.init, strict=True)
    ]
    main = [_container(*pair, record, now, init=False) for pair in zip(pod.spec.containers, report.main, strict=True)]
    return {
        "phase": report.phase,
        **_given(reason=report.reason, message=report.message),
        "startTime": _text(record.bound_at),
        "hostIP": NODE_IP,
        "hostIPs": [{"ip": NODE_IP}],
        **_address(report, record),
        "conditions": _conditions(pod, report, record, now),
        "containerStatuses": main,
        **({"initContainerStatuses": init} if init else {}),
    }


def _address(report: PodReport, record: Record) -> JSON:
    if not any(isinstance(state, Running | Done) for state in (*report.init, *report.main)):
        return {}
    return {"podIP": record.ip, "podIPs": [{"ip": record.ip}]}


def _container(container: Container, state: State, record: Record, now: datetime, *, init: bool) -> JSON:
    name = container.name
    if not isinstance(state, Waiting):
        record.started.setdefault(name, now)
    if isinstance(state, Done):
        record.ended.setdefault(name, now)
    runs = isinstance(state, Running)
    return {
        "name": name,
        "image": container.image,
        "imageID": "" if isinstance(state, Waiting) else f"scripted://{container.image}",
        "containerID": "" if isinstance(state, Waiting) else f"scripted://{record.ip}/{name}",
        "ready": state.ready if isinstance(state, Running) else init and _is_well_done(state),
        "started": runs,
        "restartCount": 0,
        "state": _state(state, name, record),
        "lastState": {},
    }


def _is_well_done(state: State) -> bool:
    return isinstance(state, Done) and state.exit_code == 0


def _state(state: State, name: str, record: Record) -> JSON:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason, **_given(message=message)}}
        case Running():
            return {"running": {"startedAt": _text(record.started[name])}}
        case Done(exit_code, reason, message):
            return {
                "terminated": {
                    "exitCode": exit_code,
                    "reason": reason,
                    "startedAt": _text(record.started[name]),
                    "finishedAt": _text(record.ended[name]),
                    "containerID": f"scripted://{record.ip}/{name}",
                    **_given(message=message),
                }
            }


def _conditions(pod: Pod, report: PodReport, record: Record, now: datetime) -> list[JSON]:
    sidecars = [state for box, state in zip(pod.spec.init_containers, report.init, strict=True) if box.is_sidecar]
    others = [state for box, state in zip(pod.spec.init_containers, report.init, strict=True) if not box.is_sidecar]
    initialised = all(map(_is_well_done, others)) and not any(isinstance(state, Waiting) for state in sidecars)
    needed = (*report.main, *sidecars)
    runs = report.phase == "Running" and all(isinstance(state, Running) and state.ready for state in needed)
    sandbox = any(isinstance(state, Running) for state in (*report.init, *report.main))
    reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(report.phase, "ContainersNotReady")
    ours: dict[str, tuple[bool, str]] = {
        "PodReadyToStartContainers": (sandbox, ""),
        "Initialized": (initialised, "" if initialised else "ContainersNotInitialized"),
        "Ready": (runs, "" if runs else reason),
        "ContainersReady": (runs, "" if runs else reason),
    }
    if report.disrupted:
        ours["DisruptionTarget"] = (True, report.disrupted)
    return [_condition(name, *value, record, now) for name, value in ours.items()]


def _condition(name: str, value: bool, reason: str, record: Record, now: datetime) -> JSON:
    known = record.changed.get(name)
    if known is None or known[0] != value:
        record.changed[name] = known = (value, now)
    return {
        "type": name,
        "status": str(value),
        "lastTransitionTime": _text(known[1]),
        **_given(reason=reason),
    }


def _given(**values: str) -> Mapping[str, str]:
    return {name: value for name, value in values.items() if value}


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
