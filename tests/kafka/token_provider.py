"""A token provider as a user writes it: ``kafka.oauth.provider=tests.kafka.token_provider:token``."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

SECRET = "of-nobody-else"  #: a claim by which a token is recognized where it does not belong


def token(config: str) -> tuple[str, float]:
    """A token without a signature, which a broker for tests accepts; ``config`` is the file of its calls."""
    with Path(config).open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    now = time.time()
    claims = {"sub": "billing", "iat": now, "exp": now + 4, "jti": SECRET}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}.", now + 4


def no_token(config: str) -> tuple[str, float]:
    raise RuntimeError(f"the identity service refuses {SECRET}")


def _encoded(part: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
