"""What the API server turned down for what it is becomes a condition; what may pass is tried again."""

import pytest

from torchctl.api.kube import JOB
from torchctl.controllers.refusals import is_refusal, may_pass, refusal_reason
from torchctl.runtime.apply import ForeignObject, StillDeleting
from torchctl.runtime.client.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    Timeout,
    Unauthorized,
    Unavailable,
    error_for,
)
from torchctl.runtime.kinds import Key

UNREADABLE = (
    "failed to create typed patch object (team/demo; batch/v1, Kind=Job): .spec.template.spec.affinty: field not "
    "declared in schema"
)
WEBHOOK = b'{"message": "admission webhook \\"labels.example.com\\" denied the request: no label team", "code": %d}'
REFUSED = [
    (ForeignObject(JOB, Key("team", "demo")), "ForeignObject", "delete or rename it"),
    (StillDeleting(JOB, Key("team", "demo"), ("team/hook",)), "StillDeleting", "team/hook of its finalizers"),
    (Forbidden("exceeded quota: tight", code=403), "QuotaExceeded", "raise the quota"),
    (Forbidden("no jobs here", code=403), "Refused", "no jobs here"),
    (Invalid("spec.x: too long", code=422), "Refused", "spec.x: too long"),
    (Unavailable(UNREADABLE, code=500), "Refused", ".spec.template.spec.affinty: field not declared in schema"),
    *((error_for(code, WEBHOOK % code, {}), "Refused", "no label team") for code in (400, 406, 409, 500)),
    (Unauthorized("ValidatingAdmissionPolicy 'a' with binding 'a' denied request: no", code=401), "Refused", "minute"),
    (ApiError("Request entity too large: limit is 3145728", code=413), "Refused", "too large"),
]
PASSING = [
    Forbidden('persistentvolumeclaims "demo" is forbidden: status unknown for quota: team, resources: pods', code=403),
    Conflict("another version", code=409),
    Unauthorized("Unauthorized", code=401),
    Timeout("no answer to a read"),
    Unavailable("gateway timeout of a read", code=504),
    Unavailable("etcdserver: leader changed", code=500),
    Unavailable(UNREADABLE, code=503),
]

POST = 'failed to call webhook: Post "https://gate.team.svc:443/admit?timeout=10s"'
WEBHOOKS = {
    f'Internal error occurred: failed calling webhook "gate.test": {POST}: {cause}': f"webhook gate.test ({told})"
    for cause, told in (
        ("dial tcp 10.96.3.7:443: connect: connection refused", "connection refused"),
        ("read tcp 10.0.0.1:43210->10.96.3.7:443: i/o timeout", "i/o timeout"),
        ("context deadline exceeded", "context deadline exceeded"),
        ('service "gate" not found', 'service "gate" not found'),
        ("unexpected response code: 404", "unexpected response code: 404"),
        (
            'received invalid webhook response: expected response.uid="0c2bcb5a-9a4b-4b0e-8f1b-6a1f6a1f6a1f", got ""',
            'expected response.uid="...", got ""',
        ),
        (
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: "
            "current time 2026-01-01T01:00:00Z is after 2025-12-31T23:00:00+02:00",
            "x509: certificate has expired or is not yet valid: current time ... is after ...",
        ),
        (
            "tls: failed to verify certificate: x509: certificate is valid for gate, not gate.team.svc",
            "x509: certificate is valid for gate, not gate.team.svc",
        ),
    )
} | {
    "conversion webhook for torchrun.ai/v1, Kind=TorchrunJob failed: Post ...: EOF": (
        "the conversion webhook for torchrun.ai/v1, Kind=TorchrunJob (EOF)"
    )
}


@pytest.mark.parametrize("message", WEBHOOKS)
def test_webhook_that_cannot_be_asked_is_named_without_what_changes(message: str) -> None:
    """Otherwise each try would write another status, which would lead to the next try at once."""
    error = Unavailable(message, code=500)
    assert is_refusal(error)
    reason, told = refusal_reason(error, "Job demo")
    assert reason == "WebhookFailed"
    assert told.startswith(f"Job demo: the API server cannot ask {WEBHOOKS[message]}; ")
    assert may_pass([reason])


@pytest.mark.parametrize(
    "error", [Timeout("x", outcome_unknown=True), Unavailable("x", code=504, outcome_unknown=True)]
)
def test_write_that_is_given_up_is_told(error: ApiError) -> None:
    assert is_refusal(error)
    reason, told = refusal_reason(error, "Job demo")
    assert (reason, "slow" in told) == ("WriteTimedOut", True)
    assert may_pass(["Refused", reason])


def test_refusals_that_need_a_person_are_not_retried_soon() -> None:
    assert not may_pass(["Refused", "QuotaExceeded", "ForeignObject"])


@pytest.mark.parametrize(("error", "reason", "says"), REFUSED)
def test_a_refusal_has_a_reason_and_names_child_and_cause(error: Exception, reason: str, says: str) -> None:
    assert is_refusal(error)
    found, message = refusal_reason(error, "Job demo")
    assert found == reason
    assert says in message
    assert "demo" in message


@pytest.mark.parametrize("error", PASSING)
def test_what_may_pass_is_no_refusal(error: ApiError) -> None:
    assert not is_refusal(error)
    with pytest.raises(type(error)):
        refusal_reason(error, "Job demo")
