"""Kubeconfig files are merged, and a context is found in them, as kubectl does it."""

from typing import Any

import pytest

from torchctl.runtime.client.contexts import Context, Entry, File, find


def document(*names: str, current: str = "", server: str = "https://api") -> dict[str, Any]:
    return {
        "current-context": current,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
        "clusters": [{"name": name, "cluster": {"server": f"{server}/{name}"}} for name in names],
        "users": [{"name": name, "user": {"token": name}} for name in names],
    }


def test_a_context_has_its_cluster_and_user_and_their_directory() -> None:
    found = find([File("/home", document("dev", current="dev"))])
    assert found == Context(
        "dev", "default", Entry({"server": "https://api/dev"}, "/home"), Entry({"token": "dev"}, "/home")
    )


def test_the_first_file_that_sets_the_current_context_counts() -> None:
    """With the last one a command would go to another cluster than kubectl's."""
    files = [File("/a", document("a")), File("/b", document("b", current="b")), File("/c", document("c", current="c"))]
    assert find(files).name == "b"
    assert find(files, "c").cluster.directory == "/c"


def test_the_first_file_that_has_a_name_counts() -> None:
    first, second = document("dev", server="https://first"), document("dev", server="https://second")
    assert find([File("/a", first), File("/b", second)], "dev").cluster == Entry({"server": "https://first/dev"}, "/a")


def test_a_context_may_be_without_a_user() -> None:
    whole = document("dev", current="dev")
    del whole["contexts"][0]["context"]["user"]
    assert find([File("", whole)]).user == Entry()


def spoilt(**fields: Any) -> dict[str, Any]:
    return document("dev", current="dev") | fields


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ([], "no mapping"),
        (None, "no mapping"),
        ({}, "no current-context"),
        (spoilt(**{"current-context": "prod"}), "no context 'prod', but 'dev'"),
        (spoilt(clusters=[]), "no cluster 'dev', but none at all"),
        (spoilt(users=None), "no user 'dev', but none at all"),
        (spoilt(clusters={"dev": {}}), "clusters is no list"),
        (spoilt(contexts=["dev"]), "an entry of contexts has no name"),
        (spoilt(contexts=[{"context": {}}]), "an entry of contexts has no name"),
        (spoilt(users=[{"name": "dev", "user": "me"}]), "the user 'dev' is no mapping"),
        (spoilt(clusters=[{"name": "dev", "cluster": {}}]), "the cluster 'dev' has no server"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(file: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        find([File("", file)])
