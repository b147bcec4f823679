"""In whose name requests are sent."""

import pytest

from torchctl.runtime.client.impersonation import Impersonation


def test_each_group_and_value_has_a_header_of_its_own() -> None:
    whole = Impersonation(
        user="ann@example.com", groups=("dev", "ml"), uid="7", extra={"Example.com/Scopes": ("view", "edit")}
    )
    assert whole.headers == (
        ("Impersonate-User", "ann@example.com"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ml"),
        ("Impersonate-Extra-example.com%2Fscopes", "view"),
        ("Impersonate-Extra-example.com%2Fscopes", "edit"),
    )


def test_a_group_needs_a_user() -> None:
    with pytest.raises(ValueError, match="together with a user"):
        Impersonation(groups=("dev",))


@pytest.mark.parametrize("fields", [{"user": "a\r\nb"}, {"user": "a", "groups": ("b\n",)}])
def test_a_name_cannot_add_a_header(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="control character"):
        Impersonation(**fields)  # type: ignore[arg-type]  # a table of fields
