"""Prints objects as a table, JSON, YAML or names. A table on a terminal is the same text as in a pipe, as kubectl's."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from torchctl.client.tables import Table

__all__ = ["all_namespaces_option", "is_raw", "output_option", "print_document", "print_objects", "print_table"]

FORMATS = ("wide", "name", "json", "yaml")

output_option = click.option(
    "-o", "--output", type=click.Choice(FORMATS), default=None, help="Another form of output. Default: a table."
)
all_namespaces_option = click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")


def is_raw(output: str | None) -> bool:
    """Tells if the format needs objects with all their fields."""
    return output in ("name", "json", "yaml")


def print_table(table: "Table", nothing: str) -> None:
    """Prints a table; without any row, prints `nothing` on standard error."""
    if not table.rows:
        click.echo(nothing, err=True)
        return
    click.echo("\n".join(table.lines()))


def print_objects(objects: Sequence[Mapping[str, Any]], output: str | None, *, one: bool = False) -> None:
    """Prints objects as JSON, YAML or names, as kubectl does: `one` as itself, otherwise as a List."""
    objects = [_readable(item) for item in objects]
    document: Any = objects[0] if one else {"apiVersion": "v1", "kind": "List", "items": [*objects]}
    if output == "name":
        click.echo("".join(f"{_name(item)}\n" for item in objects), nl=False)
    elif output == "json":
        import json

        click.echo(json.dumps(document, indent=4))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


def print_document(document: Mapping[str, Any], output: str | None) -> None:
    """Prints a few values: as lines, JSON or YAML."""
    if output is None:
        click.echo("\n".join(f"{name}: {value}" for name, value in document.items()))
    else:
        print_objects([document], output, one=True)


def _readable(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an object without who owns which field, which kubectl does not show either."""
    metadata = {key: value for key, value in item.get("metadata", {}).items() if key != "managedFields"}
    return {**item, "metadata": metadata} if metadata else item


def _name(item: Mapping[str, Any]) -> str:
    group = item["apiVersion"].partition("/")[0]
    return f"{item['kind'].lower()}.{group}/{item['metadata']['name']}"
