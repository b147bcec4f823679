"""Which examples property tests try: a few, always the same; many new ones where HYPOTHESIS_PROFILE=thorough is set,
and fewer of the same with `quick`.

So a change is judged by what it changes. What a thorough run finds becomes an explicit example.
"""

import os

from hypothesis import settings

__all__ = ["examples"]

PROFILES = {"quick": 0.2, "default": 1, "thorough": 20}
"""By how much each profile multiplies the examples of a test."""

_FACTOR = PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")]

for _name, _factor in PROFILES.items():
    # No deadline: a busy machine is slow, and that is no fault of what is tested.
    settings.register_profile(_name, max_examples=int(100 * _factor), deadline=None, derandomize=_name != "thorough")


def examples(count: int) -> int:
    """`count` on an ordinary run, and more or fewer in proportion in another profile."""
    return max(1, int(count * _FACTOR))
