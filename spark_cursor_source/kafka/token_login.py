"""Logins with tokens (mechanism OAUTHBEARER): a function that the options name makes the token.

The options hold the function's name only, so no token is pickled, logged or stored in a plan. Each process
that opens a client imports the function: planners, tasks, trackers and commands.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from importlib import import_module
from typing import Any

from spark_cursor_source._features import require_library
from spark_cursor_source.errors import ConflictingOptions, RefusedKafkaOption

log = logging.getLogger(__name__)

#: name of the option, without the prefix ``kafka.``
PROVIDER = "oauth.provider"

Token = tuple[str, float]  #: token, and the end of its validity in seconds since 1970


def with_login(native: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of librdkafka with the mechanism that a token provider needs.

    Raises:
        ConflictingOptions: another mechanism, or librdkafka's own OIDC login, is set beside the provider.
    """
    made = dict(native)
    if PROVIDER not in made:
        return made
    if made.setdefault("sasl.mechanism", "OAUTHBEARER").upper() != "OAUTHBEARER":
        raise ConflictingOptions(
            (f"kafka.{PROVIDER}", "kafka.sasl.mechanism"),
            "a token needs OAUTHBEARER",
            "leave one of them out",
        )
    if made.get("sasl.oauthbearer.method", "default") != "default":
        raise ConflictingOptions(
            (f"kafka.{PROVIDER}", "kafka.sasl.oauthbearer.method"),
            "both of them make tokens",
            "leave one of them out",
        )
    made.setdefault("security.protocol", "SASL_SSL")
    return made


def with_token_callback(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a client with the provider's function in place of its name.

    Raises:
        RefusedKafkaOption: there is no such function.
        ExtraNotInstalled: the provider's library is not installed.
    """
    made = dict(config)
    name = made.pop(PROVIDER, None)
    if name is not None:
        made["oauth_cb"] = _logged(name, _provider(name))
    return made


def _provider(name: str) -> Callable[[str], Any]:
    if name in BUILT_IN:
        library, function = BUILT_IN[name]
        require_library(library, what=f"kafka.{PROVIDER}={name}")
        return function
    module, colon, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute) if colon and attribute else None
    except (ImportError, AttributeError) as why:
        raise RefusedKafkaOption(
            PROVIDER,
            f"this process cannot import it ({why})",
            "install its module for the Python of the driver and of every executor",
        ) from why
    if not callable(found):
        raise RefusedKafkaOption(
            PROVIDER, f"{name!r} is no function", f"give module:function, or one of {', '.join(BUILT_IN)}"
        )
    return found  # type: ignore[no-any-return]


def _logged(name: str, function: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns the function with a log line for each failure. Its text is not told: it may quote a token."""

    def token(config: str) -> Any:
        try:
            return function(config)
        except Exception as failed:
            log.warning(
                "A token for the login at Kafka could not be made. The client tries again. "
                "event=token_login_failed provider=%s error=%s",
                name,
                type(failed).__name__,
            )
            raise

    return token


def _settings(config: str) -> dict[str, str]:
    """Returns the pairs of ``sasl.oauthbearer.config``, such as ``region=eu-west-1 profile=dev``."""
    pairs = (pair.partition("=") for pair in config.replace(",", " ").split())
    return {name: value for name, _, value in pairs}


def msk_token(config: str) -> Token:
    """Makes a token for Amazon MSK with IAM.

    The credentials are those of boto's default chain. ``region`` in ``sasl.oauthbearer.config`` overrides
    the environment variables AWS_REGION and AWS_DEFAULT_REGION.
    """
    signer = import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
    token, expiry_ms = signer.generate_auth_token(_settings(config).get("region", environment))
    return token, expiry_ms / 1_000


def gcp_token(config: str) -> Token:
    """Makes a token for Google Cloud's Managed Service for Apache Kafka, with the default credentials."""
    auth = import_module("google.auth")
    credentials, _ = auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    credentials.refresh(import_module("google.auth.transport.requests").Request())
    principal = str(_settings(config).get("principal") or getattr(credentials, "service_account_email", ""))
    expiry = credentials.expiry.replace(tzinfo=UTC)  # naive, and in UTC
    return google_token(credentials.token, expiry.timestamp(), principal)


def google_token(access_token: str, expiry_s: float, principal: str) -> Token:
    """Returns Google's form of a token: header, claims and the access token, each in base64, with dots."""
    header = json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"})
    claims = {
        "exp": int(expiry_s),
        "iat": int(time.time()),
        "iss": "Google",
        "scope": "kafka",
        "sub": principal,
    }
    parts = (header, json.dumps(claims), access_token)
    return ".".join(_base64(part) for part in parts), expiry_s


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


#: name of a provider of this package -> library that it needs, and its function
BUILT_IN: dict[str, tuple[str, Callable[[str], Token]]] = {
    "msk": ("aws_msk_iam_sasl_signer", msk_token),
    "gcp": ("google.auth", gcp_token),
}
