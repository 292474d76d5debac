"""Says which faults of requests to a bucket pass, and describes the others for people."""

# s3fs, fsspec and botocore have no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import os
import re
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
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
_SKEWED = {"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"}
_SKEW_S = 900
"""Most seconds between the clocks of a request and of S3."""

_PAGES = ("text/", "application/json")
"""Types of content in which S3 never sends an error."""

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


class ConditionFailed(Exception):
    """The condition of a request does not hold."""


class Unlike(Exception):
    """The received bytes are not the announced ones."""


class ForeignAnswer(Exception):
    """The answer is not one of S3."""


def endpoint() -> str:
    """Return the endpoint of requests, as far as the environment names it, without secrets."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if found := os.environ.get(name):
            return re.sub(r"//[^/]*@", "//", found)
    return "the endpoint of the AWS configuration"


def status_of(error: BaseException) -> tuple[int, str]:
    """Return the HTTP status and the code of an error answer, (0, '') for any other error."""
    answer = _answer(error)
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(answer.get("Error", {}).get("Code", ""))
    return int(status or (code if code.isdigit() else 0)), code


def foreign(error: BaseException) -> str:
    """Return the sign that an answer is not one of S3, or ''.

    S3 describes errors in XML and marks its answers with headers of its own.
    """
    if isinstance(error, ForeignAnswer):
        return str(error)
    status, code = status_of(error)
    headers = _headers(error)
    kind = headers.get("content-type", "").partition(";")[0]
    if code not in ("", str(status)) or not kind.startswith(_PAGES):
        return ""
    if any(name.startswith("x-amz") for name in headers):
        return ""
    return f"status {status} with {kind}"


def _answer(error: BaseException) -> dict[str, Any]:
    for one in (error, error.__cause__):
        if isinstance(one, boto.ClientError):
            return cast(dict[str, Any], one.response)
    return {}


def _headers(error: BaseException) -> dict[str, str]:
    found = _answer(error).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return {str(name).lower(): str(value) for name, value in found.items()}


def _ahead(error: BaseException) -> float | None:
    """Return the seconds that the store's clock is ahead of this machine's, None if unknown."""
    server_time = str(_answer(error).get("Error", {}).get("ServerTime", ""))
    try:
        there = datetime.fromisoformat(server_time) if server_time else None
        there = there or parsedate_to_datetime(_headers(error)["date"])
    except (KeyError, ValueError):
        return None
    return there.timestamp() - time.time()


def _skew(error: BaseException) -> str:
    """Return the message for a request that the store refused for its time, else ''."""
    status, code = status_of(error)
    ahead = _ahead(error)
    # The answer to a HEAD has no code.
    bare = status == 403 and code in ("", "403") and ahead is not None and abs(ahead) > _SKEW_S
    if code not in _SKEWED and not bare:
        return ""
    differs = "differs too much from"
    if ahead is not None:
        differs = f"is {abs(ahead) / 60:.0f} minutes {'behind' if ahead > 0 else 'ahead of'}"
    return (
        f"this machine's clock {differs} that of {endpoint()}, which refuses requests more than "
        f"{_SKEW_S // 60} minutes apart: set the clock (timedatectl set-ntp true, or the host's "
        "clock of a container or virtual machine), and run the same command again"
    )


def fault(error: Exception) -> str | None:
    """Return a passing fault in words, None for a lasting one."""
    status, code = status_of(error)
    if (status >= 500 and status != 501) or status == 429 or code in _PASSING:
        named = "" if code == str(status) else f" {code}"
        return f"the store answered {status}{named}".rstrip()
    if isinstance(error, Unlike):
        return "an answer was cut off"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return None
    lost = (boto.ConnectionError, *_LOST)
    if isinstance(error, lost) or isinstance(error.__cause__, lost):
        return f"no answer from {endpoint()} ({type(error).__name__})"
    return None


def why(error: Exception, bucket: str) -> str:
    """Return the message for a lasting fault."""
    status, code = status_of(error)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return (
            "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "AWS_PROFILE, or give this machine a role"
        )
    if isinstance(error, ValueError) and "endpoint" in str(error):
        return f"{endpoint()!r} is no address of a store: write http://HOST:PORT"
    if what := foreign(error):
        return no_store(what)
    if skew := _skew(error):
        return skew
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


def no_store(what: str) -> str:
    """Return the message for an endpoint that answers in another way than S3."""
    return (
        f"{endpoint()} answers, but not as S3 does ({what}): it is no S3 store, or something "
        "before the store answers in its place; give the address of the store's S3 API in "
        "AWS_ENDPOINT_URL or --endpoint-url, not that of its console or a web page"
    )
