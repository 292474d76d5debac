"""What goes wrong with a request to a bucket: what passes by itself, and what a person reads."""

# s3fs, fsspec and botocore have no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import os
import re
from typing import Any, cast

import aiohttp
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from genenv_core.errors import described

_PASSING = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "RequestTimeout",
    "InternalError",
    "ServiceUnavailable",
    "BadDigest",
    "IncompleteBody",
    "OperationAborted",
    "ConditionalRequestConflict",
}
_DENIED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken"}
_LOST = (
    aiohttp.ClientError,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    ResponseParserError,
    ConnectionError,
    TimeoutError,
    asyncio.IncompleteReadError,
)


class Refused(Exception):
    """The condition of a request does not hold."""


class Unlike(Exception):
    """The bytes that came are not those that were announced."""


def endpoint() -> str:
    """Return where requests go, as far as the environment says it, without what may be secret."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if found := os.environ.get(name):
            return re.sub(r"//[^/]*@", "//", found)
    return "the endpoint of the AWS configuration"


def status_of(error: BaseException) -> tuple[int, str]:
    """Return the HTTP status and the code of an error answer, (0, '') of anything else."""
    for one in (error, error.__cause__):
        if isinstance(one, boto.ClientError):
            answer = cast(dict[str, Any], one.response)
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(answer.get("Error", {}).get("Code", ""))
            return int(status or (code if code.isdigit() else 0)), code
    return 0, ""


def fault(error: Exception) -> str | None:
    """Return a passing fault in words, None for one that will not pass."""
    status, code = status_of(error)
    if (status >= 500 and status != 501) or status == 429 or code in _PASSING:
        return f"the store answered {status} {code}".rstrip()
    if isinstance(error, Unlike):
        return "an answer was cut off"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return None
    lost = (boto.ConnectionError, *_LOST)
    if isinstance(error, lost) or isinstance(error.__cause__, lost):
        return f"no answer from {endpoint()} ({type(error).__name__})"
    return None


def why(error: Exception, bucket: str) -> str:
    """Return what a person reads of a fault that will not pass."""
    status, code = status_of(error)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return (
            "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "AWS_PROFILE, or give this machine a role"
        )
    if isinstance(error, ValueError) and "endpoint" in str(error):
        return f"{endpoint()!r} is no address of a store: write http://HOST:PORT"
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket!r} at {endpoint()}: make it, or choose another"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            f"the certificate of {endpoint()} is not trusted: name its authority in AWS_CA_BUNDLE"
        )
    if status in (401, 403) or code in _DENIED:
        return (
            f"access denied ({code or status}): check the credentials and their permissions; "
            "docs/s3.md lists those that are needed"
        )
    return described(error, 300)
