"""What the API server refuses becomes one line that says what, which object, and what next."""

import ssl

import pytest

from torchctl.client import errors
from torchctl.client.errors import ClientError
from torchctl.client.refusals import explain, explained
from torchctl.runtime.client import errors as api
from torchctl.runtime.client.credentials import CredentialsError
from torchctl.runtime.kinds import StatusDetails

WHAT = "TorchrunJob vit in namespace ml"
NO_RIGHT = (
    'torchrunjobs.torchrun.ai is forbidden: User "ann" cannot list resource "torchrunjobs" in API group "torchrun.ai"'
)
ANONYMOUS = NO_RIGHT.replace('"ann"', '"system:anonymous"')
POLICY = (
    "torchrunjobs.torchrun.ai \"vit\" is forbidden: ValidatingAdmissionPolicy 'gpus' denied request: "
    "a job cannot have more than 8 GPUs"
)


def caused(error: api.ApiError, cause: Exception) -> api.ApiError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (api.Unauthorized("Unauthorized", code=401), errors.NotLoggedIn, "does not accept the login of context dev"),
        (api.Forbidden(NO_RIGHT, code=403), errors.NotAllowed, 'User "ann" cannot list'),
        (api.Forbidden(ANONYMOUS, code=403), errors.NotLoggedIn, "context dev gives no credentials that it takes"),
        (
            caused(api.Unavailable("cannot connect: x"), ssl.SSLCertVerificationError("self-signed")),
            errors.Unreachable,
            "is not one that the kubeconfig trusts: cannot connect: x",
        ),
        (api.Forbidden("exceeded quota: small", code=403), errors.RequestRefused, "exceeded quota: small"),
        (api.Forbidden(POLICY, code=403), errors.RequestRefused, "a job cannot have more than 8 GPUs"),
        (api.NotFound("404: 404 page not found", code=404), errors.NotInstalled, "torchctl is not installed"),
        (
            api.NotFound("not found", code=404, details=StatusDetails("vit", "torchrunjobs")),
            errors.NotFound,
            f"there is no {WHAT}",
        ),
        (
            api.NotFound("not found", code=404, details=StatusDetails("ml", "namespaces")),
            errors.NotFound,
            "there is no namespace ml",
        ),
        (api.Unavailable("cannot connect"), errors.Unreachable, "https://api:6443 gives no answer: cannot connect"),
        (api.Timeout("no answer in time"), errors.Unreachable, "gives no answer"),
        (
            caused(api.Unavailable("x"), CredentialsError("the plugin says: log in")),
            errors.NotLoggedIn,
            "no credentials for context dev: the plugin says: log in",
        ),
        (api.Unavailable("etcd is away", code=503), errors.Unreachable, "cannot answer now: etcd is away"),
        (api.TooManyRequests("slow down", code=429), errors.Unreachable, "cannot answer now"),
        (api.AlreadyExists("taken", code=409), errors.RequestRefused, f"{WHAT} exists already"),
        (api.Conflict("newer version", code=409), errors.RequestRefused, "changed by somebody else"),
        (api.Invalid("spec.numNodes: must be 1", code=422), errors.RequestRefused, "spec.numNodes: must be 1"),
        (api.Malformed("no JSON"), errors.RequestRefused, "cannot be understood: no JSON"),
        (api.ApiError("418: teapot", code=418), errors.RequestRefused, "418: teapot"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_refusal_becomes_an_error_for_a_person(error: api.ApiError, kind: type[ClientError], says: str) -> None:
    found = explain(error, WHAT, host="https://api:6443", login="context dev")
    assert type(found) is kind
    assert says in str(found)


def test_the_error_of_the_server_stays_the_cause() -> None:
    with pytest.raises(errors.RequestRefused) as raised, explained(WHAT):
        raise api.Invalid("no", code=422)
    assert isinstance(raised.value.__cause__, api.Invalid)


def test_errors_that_are_not_the_servers_pass() -> None:
    with pytest.raises(ZeroDivisionError), explained(WHAT):
        raise ZeroDivisionError
