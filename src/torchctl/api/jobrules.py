"""Rules across the fields of a TorchrunJob, and rules for what may change after its creation."""

import re
from collections.abc import Iterator
from typing import Any

from torchctl.api.common import RdzvBackend
from torchctl.api.names import MAX_JOB_NAME
from torchctl.api.rules import Rule

__all__ = ["JOB_OBJECT_RULES", "JOB_RULES", "URL", "WORKSPACE_RULES", "object_problems"]

URL = r"^(https|ssh|s3)://[A-Za-z0-9_\[]\S*$"
"""The schemes that the workspace program speaks. The first character keeps options away from ssh."""

_METADATA = (
    "(?i)^(https|ssh)://([^/?#]*@)?(169[.]254[.]|100[.]100[.]100[.]200|metadata([.:/]|$)|"
    "[^a-z0-9](fe[89ab][0-9a-f]:|fd00:ec2::254|::ffff:(169[.]254[.]|a9fe:)))"
)
"""Addresses that answer to whoever is on the machine. A name that leads there is refused when it is looked up."""

_FROZEN = (
    "jobQueue",
    "numGPUs",
    "elastic",
    "command",
    "args",
    "setupCommand",
    "workingDir",
    "launcher",
    "hotReload",
    "nprocPerNode",
    "distributed",
    "image",
    "env",
    "envFrom",
    "labels",
    "annotations",
    "nodeSelector",
    "tolerations",
    "priorityClassName",
    "dependsOn",
    "runPolicy.maxWorkerRestarts",
)
_FROZEN_VOLUMES = ("datasets", "checkpoints", "additionalVolumes", "additionalMounts")
_FROZEN_WORKSPACE = (
    "enabled",
    "source",
    "url",
    "ref",
    "secretRef",
    "claimName",
    "subPath",
    "size",
    "timeoutSeconds",
)


def _present(root: str, path: str) -> str:
    steps = path.split(".")
    return " && ".join(f"has({root}.{'.'.join(steps[: depth + 1])})" for depth in range(len(steps)))


def _same(path: str) -> str:
    """Neither changed nor added nor removed. Comparing optionals would be shorter, and beyond CEL's cost budget.

    Kubernetes before 1.33 estimates the cost of `self.?x == oldSelf.?x` by the size of the whole object, even for a
    number.
    """
    now, before = _present("self", path), _present("oldSelf", path)
    return f"({now}) == ({before}) && (!({now}) || self.{path} == oldSelf.{path})"


def _frozen(path: str) -> Rule:
    return Rule(
        cel=_same(path),
        message=f"{path} is immutable: submit another job instead",
        field=path,
    )


def _source(workspace: Any) -> str:
    return str(workspace.source)


def _userinfo(url: str) -> str:
    """Returns the part of a URL's authority before the @."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    return authority.rpartition("@")[0]


def _without_credentials(workspace: Any) -> bool:
    url = workspace.url or ""
    return ":" not in _userinfo(url) if url.startswith("ssh://") else not _userinfo(url)


WORKSPACE_RULES = (
    Rule(
        cel="!(self.?source.orValue('zip') in ['git', 's3']) || has(self.url)",
        message="url is required for source git and s3",
        holds=lambda self: _source(self) not in ("git", "s3") or self.url is not None,
    ),
    Rule(
        cel="self.?source.orValue('zip') != 'existing' || has(self.claimName)",
        message="claimName is required for source existing",
        holds=lambda self: _source(self) != "existing" or self.claim_name is not None,
    ),
    Rule(
        cel="self.?source.orValue('zip') == 'existing' || !has(self.claimName)",
        message="claimName is for source existing only",
        holds=lambda self: _source(self) == "existing" or self.claim_name is None,
    ),
    Rule(
        cel="self.?source.orValue('zip') != 'existing' || !(has(self.url) || has(self.size))",
        message="url and size do not go with source existing",
        holds=lambda self: _source(self) != "existing" or (self.url is None and self.size is None),
    ),
    Rule(
        cel="self.?source.orValue('zip') == 'git' || !has(self.ref)",
        message="ref is for source git only",
        holds=lambda self: _source(self) == "git" or self.ref is None,
    ),
    Rule(
        cel="!has(self.url) || self.?source.orValue('zip') == 'existing' || self.url.matches("
        "self.?source.orValue('zip') == 's3' ? '^s3:' : self.?source.orValue('zip') == 'git' ? '^(https|ssh):' : "
        "'^https:')",
        message="url must be https for source zip, https or ssh for git, s3 for s3",
        holds=lambda self: (
            self.url is None
            or self.url.startswith(
                {"zip": ("https://",), "git": ("https://", "ssh://"), "s3": ("s3://",)}.get(_source(self), ("",))
            )
        ),
        field="url",
    ),
    Rule(
        cel="!has(self.url) || !self.url.matches('^(https|s3)://[^/?#]*@') && "
        "!self.url.matches('^ssh://[^/?#]*:[^/?#]*@')",
        message="url must not hold credentials: put them into a Secret and name it in secretRef",
        holds=_without_credentials,
        field="url",
    ),
    Rule(
        cel="!has(self.url) || !self.url.matches('^[a-z0-9]+://[^/?#]*@-')",
        message="the host in url must not start with '-'",
        holds=lambda self: self.url is None or not re.match("[a-z0-9]+://[^/?#]*@-", self.url),
        field="url",
    ),
    Rule(
        cel=f"!has(self.url) || !self.url.matches('{_METADATA}')",
        message="the host in url must not be a machine's own metadata service",
        holds=lambda self: self.url is None or not re.match(_METADATA, self.url),
        field="url",
    ),
    Rule(
        cel="!has(self.ref) || !self.ref.contains('..')",
        message="ref must not contain '..'",
        holds=lambda self: ".." not in (self.ref or ""),
        field="ref",
    ),
    Rule(
        cel="!has(self.revision) || self.?source.orValue('zip') == 'git' || "
        "(self.?source.orValue('zip') == 'zip' && !has(self.url)) || "
        "self.revision.matches('^(sha256:)?[0-9a-fA-F]{64}$')",
        message="revision must be sha256: and 64 hexadecimal digits for source s3, existing, and zip with url",
        holds=lambda self: (
            self.revision is None
            or _source(self) == "git"
            or (_source(self) == "zip" and self.url is None)
            or re.fullmatch("(sha256:)?[0-9a-fA-F]{64}", self.revision) is not None
        ),
        field="revision",
    ),
    Rule(
        cel="!has(self.subPath) || !self.subPath.matches('(^|/)[.][.](/|$)')",
        message="subPath must not contain '..'",
        holds=lambda self: ".." not in (self.sub_path or "").split("/"),
        field="subPath",
    ),
)

_COLD = "self.?hotReload.orValue('Off') == 'Off'"


def _reloaded(job: Any) -> Any:
    """Returns the workspace that the job says, if it reloads its code while it runs; else None."""
    return job.volumes.workspace if str(job.hot_reload) != "Off" else None


_HOT_RELOAD = (
    Rule(
        cel="self.?hotReload.orValue('Off') in ['Off', 'Files'] || self.?launcher.orValue('torchrun') == 'torchrun'",
        message="hotReload needs launcher torchrun, unless it is Files: without it there is nothing to start again",
        holds=lambda self: str(self.hot_reload) in ("Off", "Files") or str(self.launcher) == "torchrun",
        field="hotReload",
    ),
    Rule(
        cel=f"{_COLD} || self.?volumes.?workspace.?source.orValue('zip') != 'existing'",
        message="hotReload does not go with source existing: it would write to your claim; use source zip, git or s3",
        holds=lambda self: _reloaded(self) is None or _source(_reloaded(self)) != "existing",
        field="hotReload",
    ),
    Rule(
        cel=f"{_COLD} || !self.?volumes.?workspace.?subPath.hasValue()",
        message="hotReload does not go with volumes.workspace.subPath: send the directory itself",
        holds=lambda self: _reloaded(self) is None or _reloaded(self).sub_path is None,
        field="hotReload",
    ),
)

JOB_RULES = (
    Rule(
        cel="has(self.numNodes) != has(self.numGPUs)",
        message="exactly one of numNodes and numGPUs must be set",
        holds=lambda self: (self.num_nodes is None) != (self.num_gpus is None),
    ),
    Rule(
        cel="has(self.command) != has(self.args)",
        message="exactly one of command and args must be set",
        holds=lambda self: (self.command is None) != (self.args is None),
    ),
    Rule(
        cel="!has(self.args) || self.args[0] != ''",
        message="args must start with the program to run",
        holds=lambda self: self.args is None or self.args[0] != "",
        field="args",
    ),
    Rule(
        cel="!self.?priorityClassName.orValue('').startsWith('system-')",
        message="priorityClassName must not be one of the cluster's own: system-* may evict what keeps nodes alive",
        holds=lambda self: not (self.priority_class_name or "").startswith("system-"),
        field="priorityClassName",
    ),
    Rule(
        cel="!has(self.elastic) || has(self.numNodes)",
        message="elastic goes with numNodes only",
        holds=lambda self: self.elastic is None or self.num_nodes is not None,
        field="elastic",
    ),
    Rule(
        cel="!has(self.elastic) || !has(self.numNodes) "
        "|| self.elastic.minNodes <= self.numNodes && self.numNodes <= self.elastic.maxNodes",
        message="numNodes must be within elastic.minNodes and elastic.maxNodes",
        holds=lambda self: (
            self.elastic is None
            or self.num_nodes is None
            or self.elastic.min_nodes <= self.num_nodes <= self.elastic.max_nodes
        ),
        field="numNodes",
    ),
    Rule(
        cel="!has(self.elastic) || self.?distributed.?rdzvBackend.orValue('') != 'static'",
        message="elastic does not go with distributed.rdzvBackend static",
        holds=lambda self: self.elastic is None or self.distributed.rdzv_backend is not RdzvBackend.STATIC,
        field="elastic",
    ),
    *_HOT_RELOAD,
    Rule(
        cel=f"has(self.elastic) || {_same('numNodes')}",
        message="numNodes is immutable without elastic: submit another job instead",
        field="numNodes",
    ),
    Rule(
        cel="has(self.numNodes) == has(oldSelf.numNodes)",
        message="numNodes cannot be added or removed: submit another job instead",
    ),
    *(_frozen(field) for field in _FROZEN),
    *(_frozen(f"volumes.{field}") for field in _FROZEN_VOLUMES),
    *(_frozen(f"volumes.workspace.{field}") for field in _FROZEN_WORKSPACE),
)

JOB_OBJECT_RULES = (
    Rule(
        cel=f"self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= {MAX_JOB_NAME}",
        message=f"metadata.name must be a DNS label of at most {MAX_JOB_NAME} characters that starts with a letter",
    ),
    Rule(
        cel="!self.metadata.name.matches('-(r|sync-)[0-9]+$')",
        message="metadata.name must not end in -r<number> or -sync-<number>: attempts and sync pods have such names",
    ),
    Rule(
        cel="!self.metadata.name.endsWith('-workspace')",
        message="metadata.name must not end in -workspace: the Service of another job's workspace has such a name",
        holds=lambda self: not self.metadata.name.endswith("-workspace"),
        at_creation=True,
    ),
    Rule(
        cel="!has(self.spec.dependsOn) || self.spec.dependsOn.all(d, d.job != self.metadata.name)",
        message="spec.dependsOn must not name the job itself",
    ),
)


def object_problems(job: Any) -> Iterator[str]:
    """Yields the rules about names that a TorchrunJob breaks. It may be older than the rules."""
    for rule in JOB_OBJECT_RULES:
        if rule.holds is not None and not rule.holds(job):
            yield rule.message
