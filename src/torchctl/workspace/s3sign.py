"""Signs requests to an S3 server (AWS Signature Version 4) with the library of AWS's own SDKs."""

import hashlib
from datetime import datetime
from urllib.parse import urlsplit

from awscrt import auth, http

from .secret import S3Access

__all__ = ["signature"]

_EMPTY = hashlib.sha256(b"").hexdigest()


def signature(url: str, access: S3Access, region: str, now: datetime) -> dict[str, str]:
    """Return the headers that sign a GET of `url` (percent-encoded as it is sent); none without keys."""
    if not access.access_key_id:
        return {}
    split = urlsplit(url)
    path = (split.path or "/") + (f"?{split.query}" if split.query else "")
    request = http.HttpRequest("GET", path, http.HttpHeaders([("Host", split.netloc)]))
    config = auth.AwsSigningConfig(
        algorithm=auth.AwsSigningAlgorithm.V4,
        signature_type=auth.AwsSignatureType.HTTP_REQUEST_HEADERS,
        credentials_provider=auth.AwsCredentialsProvider.new_static(
            access.access_key_id, access.secret_access_key, access.session_token or None
        ),
        region=region,
        service="s3",
        date=now,
        use_double_uri_encode=False,
        should_normalize_uri_path=False,
        signed_body_value=_EMPTY,
        signed_body_header_type=auth.AwsSignedBodyHeaderType.X_AMZ_CONTENT_SHA_256,
    )
    signed = auth.aws_sign_request(request, config).result(timeout=10)
    return {name: value for name, value in signed.headers if name.lower() != "host"}
