"""The first documentation, whose manifests users have in their files."""

import os
import re
from pathlib import Path

__all__ = ["SEEDS", "manifests"]

SEEDS = os.environ.get("TORCHCTL_SEEDS", "")
"""The directory with that documentation; without it there is nothing to prove."""

_FENCED = re.compile(r"^```ya?ml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def manifests(seed: str) -> list[str]:
    """The fenced YAML blocks of a document that hold our kinds."""
    text = next(Path(SEEDS).glob(f"{seed}*")).read_text()
    return [block for block in _FENCED.findall(text) if "torchrun.ai/" in block]
