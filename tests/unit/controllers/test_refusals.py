"""What the API server turned down for what it is becomes a condition; what may pass is tried again."""

import pytest

from torchctl.api.kube import JOB
from torchctl.controllers.refusals import is_refusal, refusal_reason
from torchctl.runtime.apply import ForeignObject
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
    Unavailable('failed calling webhook "labels.example.com": connection refused', code=500),
    Timeout("no answer"),
    Unavailable("etcdserver: leader changed", code=500),
    Unavailable(UNREADABLE, code=503),
]


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
