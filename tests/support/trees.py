"""Random trees of files, directories and links, and how they come onto a disk."""

import os
from pathlib import Path

from hypothesis import strategies as st

__all__ = ["NAMES", "TREES", "plant"]

NAMES = st.text(alphabet="ab.é -\n\\\udcff", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
TREES = st.recursive(
    st.tuples(st.binary(max_size=600), st.sampled_from([0o644, 0o600, 0o755, 0o777])),
    lambda children: st.dictionaries(NAMES, children, max_size=4),
    max_leaves=12,
)


def plant(place: Path, tree: object) -> None:
    assert isinstance(tree, dict)
    place.mkdir()
    for name, node in tree.items():
        if isinstance(node, dict):
            plant(place / name, node)
            if not os.path.lexists(place / name / "a-link"):
                (place / name / "a-link").symlink_to("..")
        else:
            (place / name).write_bytes(node[0])
            (place / name).chmod(node[1])
