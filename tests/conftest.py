"""What holds for all tests."""

import os

import effort  # noqa: F401  # registers the profiles
from hypothesis import settings

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
