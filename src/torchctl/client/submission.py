"""Makes the TorchrunJob that a person asks for: from flags, from a file, or from a file with flags over it. Pure.

What a person wrote is kept as it is. Whatever is wrong is told before anything is sent, by the flag, or by the field of
the file, that it was written in.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchctl.api.job import TORCHRUN_JOB, JobSpec, WorkspaceSource
from torchctl.api.names import API_VERSION
from torchctl.client import giturls
from torchctl.client.checking import Origins, checked
from torchctl.client.errors import UsageError
from torchctl.client.jobnames import name_problem, new_name, script_in

__all__ = ["Request", "Submission", "build", "elastic_of", "pairs_of"]

Json = dict[str, Any]

_KUBELET = re.compile(r"\$(?=[$(])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All that a person may say about a new job. What is None or empty was not said.

    Args:
        queue: The TorchrunQueue.
        gpus: GPUs of the whole job.
        nodes: Nodes; with `elastic` those that it should have, by default as many as it may.
        elastic: The fewest and the most nodes.
        command: A shell line.
        args: An argv, instead of `command`.
        env: Variables by name. A value arrives as it is: nothing in it is expanded.
        git: URL[@ref] of a repository, instead of the directory.
        git_secret: The Secret with the credentials for it.
        directory: Name of the directory that is the workspace.
        workspace: True if the directory was named, False if the job should have no workspace, None if nothing was said.
        hot_reload: The way in which a running job takes new code: Restart, WarmStart or Files.
        labels: Labels of the job and of its pods.
        annotations: Annotations of the job and of its pods.
        manifest: A TorchrunJob, which the rest is put over.
        file: The name of the file that it is from.
        namespace: The namespace that was named.
        default_namespace: The namespace if neither flag nor file name one.
    """

    queue: str = ""
    gpus: int | None = None
    nodes: int | None = None
    elastic: tuple[int, int] | None = None
    command: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    name: str = ""
    git: str = ""
    git_secret: str = ""
    directory: str = ""
    workspace: bool | None = None
    hot_reload: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    manifest: Mapping[str, Any] | None = None
    file: str = "the file"
    namespace: str = ""
    default_namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it is sent (`body`), read (`spec`), and whether the directory follows it (`uploads`)."""

    body: Json
    spec: JobSpec
    uploads: bool

    def noted(self, annotation: str, value: str) -> Json:
        """Returns the job with one more annotation of its own."""
        metadata = self.body["metadata"]
        annotations = {**metadata.get("annotations", {}), annotation: value}
        return self.body | {"metadata": metadata | {"annotations": annotations}}

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])

    @property
    def queue(self) -> str:
        return self.spec.job_queue


def build(request: Request, choose: Callable[[Sequence[str]], str]) -> Submission:
    """Returns the job that was asked for.

    Args:
        choose: Picks one of several characters at random, for a name if none was given.

    Raises:
        UsageError: Something is missing, or is not possible; the message names the flag and the next step.
    """
    _exclude(request)
    origins = Origins(request.file if request.manifest is not None else "")
    written = copy.deepcopy(dict(request.manifest or {}))
    metadata, spec = _of_file(written, request)
    _size(spec, request, origins)
    _program(spec, request, origins)
    _surroundings(spec, request, origins)
    uploads = _workspace(spec, request, origins)
    _complete(spec)
    model = checked(spec, origins)
    found = _metadata(metadata, spec, request, choose, uploads)
    body = {"apiVersion": API_VERSION, "kind": TORCHRUN_JOB.kind, "metadata": found, "spec": spec}
    return Submission(body, model, uploads)


def elastic_of(text: str) -> tuple[int, int]:
    """Reads MIN:MAX.

    Raises:
        UsageError: It is nothing like it.
    """
    found = re.fullmatch("([0-9]{1,6}):([0-9]{1,6})", text)
    if found is None:
        raise UsageError(f"--elastic {text!r} is not MIN:MAX", "Write the fewest and the most nodes, such as 2:8.")
    return int(found[1]), int(found[2])


def pairs_of(flag: str, pairs: Sequence[str]) -> dict[str, str]:
    """Reads KEY=VALUE, several times; the last one of a key counts.

    Raises:
        UsageError: One has no key, or no equals sign.
    """
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            raise UsageError(f"{flag} {pair!r} is not KEY=VALUE", f"For an empty value write {flag} KEY=.")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


# The parts.


def _exclude(request: Request) -> None:
    """Refuses flags that contradict each other."""
    said = {
        "--gpus": request.gpus is not None,
        "--nodes": request.nodes is not None,
        "--elastic": request.elastic is not None,
        "--git": bool(request.git),
        "--workspace": request.workspace is True,
        "--no-workspace": request.workspace is False,
        "the command": request.command is not None,
        "the arguments behind --": bool(request.args),
    }
    for one, other, step in (
        ("--gpus", "--nodes", "Leave one out: --gpus counts all GPUs of the job, --nodes whole nodes of the queue."),
        ("--gpus", "--elastic", "An elastic job counts in nodes: use --nodes, or --elastic alone."),
        ("--git", "--workspace", "Leave one out: the code comes from one of them."),
        ("--git", "--no-workspace", "Leave one out: the code comes from git, or there is none."),
        ("the command", "the arguments behind --", "Leave one out: they say the same in two ways."),
    ):
        if said[one] and said[other]:
            raise UsageError(f"{one} and {other} exclude each other", step)
    if request.elastic is not None and request.elastic[0] > request.elastic[1]:
        fewest, most = request.elastic
        raise UsageError(f"--elastic {fewest}:{most} has a minimum above its maximum", f"Write {most}:{fewest}.")
    if request.git_secret and not request.git:
        raise UsageError("--git-secret goes with --git only", "Leave it out, or name the repository.")


def _of_file(written: Json, request: Request) -> tuple[Json, Json]:
    """Returns metadata and spec of the file; both empty without one."""
    if request.manifest is None:
        return {}, {}
    kind = (written.get("apiVersion"), written.get("kind"))
    if kind != (API_VERSION, TORCHRUN_JOB.kind):
        raise UsageError(
            f"{request.file} has apiVersion {kind[0]} and kind {kind[1]}; submit takes {API_VERSION} and "
            f"{TORCHRUN_JOB.kind}",
            "Use kubectl apply for anything else.",
        )
    return _object(written, "metadata", request), _object(written, "spec", request)


def _size(spec: Json, request: Request, origins: Origins) -> None:
    if request.gpus is not None:
        spec["numGPUs"] = request.gpus
        spec.pop("numNodes", None)
        origins.note("numGPUs", "--gpus")
    if request.elastic is not None:
        fewest, most = request.elastic
        spec["elastic"] = {"minNodes": fewest, "maxNodes": most}
        spec["numNodes"] = most
        origins.note("elastic", "--elastic")
        origins.note("numNodes", "--elastic")
    if request.nodes is not None:
        spec["numNodes"] = request.nodes
        origins.note("numNodes", "--nodes")
    if request.nodes is not None or request.elastic is not None:
        spec.pop("numGPUs", None)


def _program(spec: Json, request: Request, origins: Origins) -> None:
    if request.command is not None:
        spec["command"] = request.command
        spec.pop("args", None)
        origins.note("command", "the command")
    if request.args:
        spec["args"] = list(request.args)
        spec.pop("command", None)
        origins.note("args", "the arguments behind --")


def _surroundings(spec: Json, request: Request, origins: Origins) -> None:
    for key, flag, value in (
        ("jobQueue", "--queue", request.queue),
        ("image", "--image", request.image),
        ("hotReload", "--hot-reload", request.hot_reload),
    ):
        if value:
            spec[key] = value
            origins.note(key, flag)
    for key, flag in (("labels", "--label"), ("annotations", "--annotation")):
        if more := getattr(request, key):
            spec[key] = _object(spec, key, request) | more
            origins.note(key, flag)
    if request.env:
        named = [entry for entry in spec.get("env") or [] if _name(entry) not in request.env]
        added = [{"name": name, "value": _literal(value)} for name, value in request.env.items()]
        spec["env"] = [*named, *added]
        origins.note("env", "--env")


def _workspace(spec: Json, request: Request, origins: Origins) -> bool:
    """Writes where the code comes from; returns whether the directory is it."""
    volumes = _object(spec, "volumes", request)
    asked = _asked_workspace(volumes.get("workspace"), request)
    if asked is None:
        return _is_uploaded(volumes["workspace"])
    spec["volumes"] = volumes | {"workspace": asked}
    origins.note("volumes.workspace", _workspace_flag(request))
    return _is_uploaded(asked)


def _asked_workspace(written: Any, request: Request) -> Json | None:
    """Returns the workspace if it is not the one of the file."""
    if request.git:
        source = giturls.parse(request.git)
        parts = {"source": "git", "url": source.url, "ref": source.ref, "secretRef": request.git_secret}
        return {key: value for key, value in parts.items() if value}
    if request.workspace is False:
        return {"enabled": False}
    if written is None:
        return {"source": str(WorkspaceSource.ZIP)}
    if request.workspace and not _is_uploaded(written):
        raise UsageError(
            f"--workspace: {request.file} says itself where the code comes from, in spec.volumes.workspace",
            "Remove it there, or leave --workspace out.",
        )
    return None


def _workspace_flag(request: Request) -> str:
    if request.git:
        return "--git"
    return "--no-workspace" if request.workspace is False else "--workspace"


def _is_uploaded(workspace: Any) -> bool:
    if not isinstance(workspace, Mapping) or workspace.get("enabled") is False:
        return False
    return workspace.get("source", WorkspaceSource.ZIP) == WorkspaceSource.ZIP and not workspace.get("url")


def _complete(spec: Json) -> None:
    for there, missing, step in (
        ("jobQueue" in spec, "--queue", "Name a TorchrunQueue; `kubectl torchrun queues` lists them."),
        (
            "command" in spec or "args" in spec,
            "the command",
            'Write it in quotes ("python train.py --epochs 10"), or as it is behind --.',
        ),
        (
            "numGPUs" in spec or "numNodes" in spec,
            "--gpus",
            "Say how many GPUs the whole job has (0 for none), or with --nodes how many whole nodes.",
        ),
    ):
        if not there:
            raise UsageError(f"{missing} is missing", step)


def _metadata(
    written: Json, spec: Json, request: Request, choose: Callable[[Sequence[str]], str], uploads: bool
) -> Json:
    namespace = str(written.get("namespace") or "")
    if request.namespace and namespace not in ("", request.namespace):
        raise UsageError(
            f"--namespace {request.namespace}: {request.file} is for namespace {namespace}", "Leave one of them out."
        )
    name = request.name or str(written.get("name") or "")
    problem = name_problem(name) if name else ""
    if problem:
        said = "--name" if request.name else f"{request.file}: metadata.name"
        raise UsageError(f"{said} {name!r} is not possible", problem)
    kept = {key: _object(written, key, request) | getattr(request, key) for key in ("labels", "annotations")}
    origin = str(written.get("generateName") or "") or _origin(spec, request, uploads)
    found = {
        "name": name or new_name(origin, choose),
        "namespace": request.namespace or namespace or request.default_namespace,
    }
    return found | {key: value for key, value in kept.items() if value}


def _origin(spec: Json, request: Request, uploads: bool) -> str:
    """Returns what a job is called after: its directory, its repository, or its script."""
    if uploads and request.directory:
        return request.directory
    if request.git:
        return giturls.parse(request.git).name
    return script_in(str(spec.get("command") or "") or " ".join(map(str, spec.get("args") or ())))


def _object(parent: Json, key: str, request: Request) -> Json:
    """Returns an object of the file; empty if it is not there."""
    value = parent.get(key)
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{request.file}: {key} must be an object", f"See `kubectl explain {TORCHRUN_JOB.plural}`.")
    return dict(value or {})


def _literal(value: str) -> str:
    """Returns a value that the kubelet, which replaces $(NAME) and $$, turns into this one."""
    return _KUBELET.sub("$$", value)


def _name(entry: Any) -> Any:
    return entry.get("name") if isinstance(entry, Mapping) else None
