"""Makes docs/reference/merging.md: how podTemplate, queue and job become one, from the table in the code."""

from pathlib import Path

from reference import DOCS, HEADER, table
from torchctl.controllers.job.template.merging import ONLY_JOB, ONLY_QUEUE, RULES, How, Rule

__all__ = ["generated"]


def generated() -> dict[Path, str]:
    """The page with its content."""
    return {DOCS / "merging.md": HEADER.format(source="src/torchctl/controllers/job/template/merging.py") + page()}


def page() -> str:
    return "\n".join(
        (
            "# How podTemplate, queue and job become one\n",
            "What a job runs with comes from three places, in this order: the queue's `podTemplate`, the queue's other "
            "fields, the job. The result is frozen when the job starts: a later edit of the queue changes nothing for "
            "it, unless it asks for that (`queueUpdatePolicy`). What the operator itself sets (torchrun's variables, "
            "names, labels, the workspace's volume) comes last, and nobody overrides it.\n",
            table(("Rule", "Means"), ((f"`{how}`", how.meaning) for how in How)),
            table(
                ("What", "podTemplate", "Queue", "Job", "Rule", "Notes"),
                (row(rule) for rule in RULES),
            ),
            "`trainer` is the container of that name. A property test proves each row "
            "([test_merging.py](../../tests/unit/controllers/job/test_merging.py)).\n",
            f"Only a queue has: {named(ONLY_QUEUE)}.\n",
            f"Only a job has: {named(ONLY_JOB)}.\n",
        )
    )


def row(rule: Rule) -> tuple[str, ...]:
    return (rule.name, rule.template, named(rule.queue), named(rule.job), f"`{rule.how}`", rule.more)


def named(fields: tuple[str, ...]) -> str:
    return ", ".join(f"`{field}`" for field in fields)
