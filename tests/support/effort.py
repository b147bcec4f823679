"""Which examples property tests try: a few, always the same; many new ones where HYPOTHESIS_PROFILE=thorough is set.

So a change is judged by what it changes. What a thorough run finds becomes an explicit example.
"""

import os

from hypothesis import settings

__all__ = ["examples"]

PROFILES = {"default": 1, "thorough": 20}
"""By how much each profile multiplies the examples of a test."""

_FACTOR = PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")]

for _name, _factor in PROFILES.items():
    # No deadline: a busy machine is slow, and that is no fault of what is tested.
    settings.register_profile(_name, max_examples=100 * _factor, deadline=None, derandomize=_name == "default")


def examples(count: int) -> int:
    """`count` on an ordinary run, and more in proportion on a thorough one."""
    return count * _FACTOR
