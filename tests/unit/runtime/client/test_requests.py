"""Requests are values: each is compared with what the API server expects to read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.kube import JOB, KAI_QUEUE, POD
from torchctl.runtime.client import requests
from torchctl.runtime.client.requests import HttpRequest

JSON_IN = (("Accept", "application/json"),)


def test_get_names_the_object_by_path() -> None:
    assert requests.get(JOB, "train", "team") == HttpRequest(
        "GET", "/apis/batch/v1/namespaces/team/jobs/train", "get", (), JSON_IN, None, 10.0
    )


def test_core_kinds_have_no_group() -> None:
    assert requests.get(POD, "p", "team").path == "/api/v1/namespaces/team/pods/p"


def test_cluster_scoped_kinds_have_no_namespace() -> None:
    assert requests.get(KAI_QUEUE, "gpu").path == "/apis/scheduling.run.ai/v2/queues/gpu"


def test_a_list_without_version_asks_for_the_newest_state() -> None:
    request = requests.list_page(POD, labels="a=b", fields="spec.nodeName=n", limit=500)
    assert request.target == "/api/v1/pods?labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dn&limit=500"
    assert request.is_bulk


def test_next_page_sends_its_token_and_no_version() -> None:
    """The token has a version in it."""
    request = requests.list_page(POD, continue_="token", resource_version="7")
    assert request.query == (("limit", "500"), ("continue", "token"))


def test_watch_requests_bookmarks_and_a_server_timeout() -> None:
    request = requests.watch(POD, namespace="team", resource_version="42", timeout_s=270.4)
    assert request.target == (
        "/api/v1/namespaces/team/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=270&resourceVersion=42"
    )


def test_a_streaming_list_asks_for_the_initial_events() -> None:
    query = dict(requests.watch(POD, send_initial_events=True, timeout_s=1).query)
    assert query["sendInitialEvents"] == "true"
    assert query["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in query


def test_apply_is_a_patch_with_a_field_manager() -> None:
    request = requests.apply(JOB, "train", b"{}", "team", manager="torchctl", force=True, subresource="status")
    assert request == HttpRequest(
        "PATCH",
        "/apis/batch/v1/namespaces/team/jobs/train/status",
        "apply",
        (("fieldManager", "torchctl"), ("force", "true")),
        (("Accept", "application/json"), ("Content-Type", "application/apply-patch+yaml")),
        b"{}",
        10.0,
    )


def test_a_dry_run_says_so() -> None:
    request = requests.apply(JOB, "train", b"{}", "team", manager="m", dry_run=True)
    assert ("dryRun", "All") in request.query


def test_a_patch_says_which_kind_it_is() -> None:
    request = requests.merge_patch(POD, "p", b"{}", "team")
    assert dict(request.headers)["Content-Type"] == "application/merge-patch+json"


def test_create_goes_to_the_collection_and_replace_to_the_object() -> None:
    assert requests.create(POD, b"{}", "team", manager="m").target == "/api/v1/namespaces/team/pods?fieldManager=m"
    assert requests.replace(POD, "p", b"{}", "team").path == "/api/v1/namespaces/team/pods/p"


def test_a_subresource_can_be_called_on_an_object() -> None:
    request = requests.create(POD, b"{}", "team", name="p", subresource="binding")
    assert request.path == "/api/v1/namespaces/team/pods/p/binding"


def test_delete_carries_its_preconditions_in_the_body() -> None:
    assert requests.delete_options(uid="u", resource_version="7", grace_s=0) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
    }


def test_a_log_is_asked_for_by_container() -> None:
    request = requests.pod_log("p", "team", container="c", limit_bytes=10)
    assert request.target == "/api/v1/namespaces/team/pods/p/log?container=c&limitBytes=10"


@pytest.mark.parametrize(("name", "namespace"), [("", "team"), ("p", "")])
def test_request_without_name_or_namespace_is_never_sent(name: str, namespace: str) -> None:
    with pytest.raises(ValueError, match="Pod"):
        requests.get(POD, name, namespace)


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_name_reaches_beyond_its_own_path_segment(name: str, namespace: str) -> None:
    path = requests.get(POD, name, namespace).path
    assert path.count("/") == 6
    assert not {"?", "#", " "} & set(path)


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_reads_are_no_writes(verb) -> None:  # type: ignore[no-untyped-def]
    assert not HttpRequest("GET", "/", verb).is_write


@pytest.mark.parametrize("verb", ["create", "apply", "patch", "update", "delete"])
def test_everything_else_is_a_write(verb) -> None:  # type: ignore[no-untyped-def]
    assert HttpRequest("POST", "/", verb).is_write
