"""Merges kubeconfig files and finds a context in them, by kubectl's rules. Pure.

Of two entries with one name the first file's counts; so does the first file's current-context. Paths are relative to
the file that has them. Source: k8s.io/client-go/tools/clientcmd, ClientConfigLoadingRules.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Context", "Entry", "File", "find"]

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class File:
    """A kubeconfig file: its directory, and what YAML made of it, which may be anything."""

    directory: str
    document: Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A cluster or user: its fields, and the directory that paths in them are relative to."""

    fields: Fields = field(default_factory=dict)
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """A context with what it names."""

    name: str
    namespace: str
    cluster: Entry
    user: Entry


def find(files: Sequence[File], name: str | None = None) -> Context:
    """Returns a context, the current one if none is named.

    Raises:
        ValueError: The files are no kubeconfigs, or what is looked for is not in them.
    """
    for file in files:
        if not isinstance(file.document, dict):
            raise ValueError("it is no mapping of fields")
    name = name or next(filter(None, (file.document.get("current-context") for file in files)), None)
    if not name:
        raise ValueError("no current-context is set")
    context = _named(files, "context", name).fields
    cluster = _named(files, "cluster", context.get("cluster"))
    if not isinstance(cluster.fields.get("server"), str):
        raise ValueError(f"the cluster {context.get('cluster')!r} has no server")
    return Context(
        name=name,
        namespace=str(context.get("namespace") or "default"),
        cluster=cluster,
        user=_named(files, "user", context["user"]) if context.get("user") else Entry(),
    )


def _named(files: Sequence[File], kind: str, name: Any) -> Entry:
    known = dict(reversed([*_entries(files, kind)]))
    if name not in known:
        raise ValueError(f"there is no {kind} {name!r}, but {', '.join(map(repr, sorted(known))) or 'none at all'}")
    return known[name]


def _entries(files: Sequence[File], kind: str) -> Iterator[tuple[str, Entry]]:
    """Yields all entries of a kind with their names, in the order of the files."""
    for file in files:
        entries = file.document.get(f"{kind}s") or []
        if not isinstance(entries, list):
            raise ValueError(f"{kind}s is no list")
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise ValueError(f"an entry of {kind}s has no name")
            fields = entry.get(kind) or {}
            if not isinstance(fields, dict):
                raise ValueError(f"the {kind} {entry['name']!r} is no mapping of fields")
            yield entry["name"], Entry(fields, file.directory)
