"""Translation of Java client options that differ in librdkafka: timeouts, buffers, key stores, JAAS."""

from __future__ import annotations

import re
from collections.abc import Callable

from spark_cursor_source.errors import ConflictingOptions, MissingOption, RefusedKafkaOption

_TO_PEM = "convert it: openssl pkcs12 -in <store as PKCS12> {flags} -out {file}, and give kafka.{option}"
_TRUST_MOVE = _TO_PEM.format(flags="-nokeys", file="ca.pem", option="ssl.ca.location")
_KEY_MOVE = (
    "convert it: keytool -importkeystore -deststoretype PKCS12, and give kafka.ssl.keystore.type=PKCS12"
)
_PEM_ENDINGS = (".pem", ".crt", ".cer")

_JAAS = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\s+(.*?);?\s*", re.DOTALL | re.I
)
_JAAS_OPTION = re.compile(
    r"""\s*([\w.]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s"';]+)\s*""", re.DOTALL
)
_JAAS_NEXT = "give kafka.sasl.username and kafka.sasl.password, or the like of your mechanism"
_PASSWORD = {"username": "sasl.username", "password": "sasl.password"}
_JAAS_MODULES = {
    "PlainLoginModule": _PASSWORD,
    "ScramLoginModule": _PASSWORD,
    "Krb5LoginModule": {
        "principal": "sasl.kerberos.principal",
        "keytab": "sasl.kerberos.keytab",
        "servicename": "sasl.kerberos.service.name",
    },
    "OAuthBearerLoginModule": {
        "clientid": "sasl.oauthbearer.client.id",
        "clientsecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}


def translate(java: dict[str, str], native: dict[str, str]) -> dict[str, str]:
    """Translate Java's options to librdkafka's.

    An option given in both forms with different values is an error.
    """
    translated: dict[str, tuple[str, str]] = {}
    steps = (_timeouts, _buffers, _trust_store, _key_store, _login_handler)
    native_items = [item for step in steps for item in step(java).items()]
    for name, (origin, value) in [*native_items, *_jaas(java, native).items()]:
        if native.get(name, value) != value:
            raise ConflictingOptions(
                (f"kafka.{origin}", f"kafka.{name}"),
                "both set the same property",
                f"leave kafka.{origin} out",
            )
        translated[name] = (origin, value)
    return {name: value for name, (_, value) in translated.items()}


_Origins = dict[str, tuple[str, str]]  # librdkafka's name -> (Java's name, value)


def _timeouts(java: dict[str, str]) -> _Origins:
    # Java limits requests and whole calls. librdkafka only limits requests, so that limit comes first.
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        if name in java:
            return {"socket.timeout.ms": (name, java[name])}
    return {}


def _buffers(java: dict[str, str]) -> _Origins:
    def system_default(value: int) -> int:
        return max(value, 0)  # Java's -1 is 0 in librdkafka

    def kilobytes(value: int) -> int:
        return max(-(-value // 1024), 1)

    buffers: dict[str, tuple[str, Callable[[int], int]]] = {
        "send.buffer.bytes": ("socket.send.buffer.bytes", system_default),
        "receive.buffer.bytes": ("socket.receive.buffer.bytes", system_default),
        "buffer.memory": ("queue.buffering.max.kbytes", kilobytes),
    }
    return {
        native: (name, str(convert(_integer(name, java[name]))))
        for name, (native, convert) in buffers.items()
        if name in java
    }


def _trust_store(java: dict[str, str]) -> _Origins:
    location = java.get("ssl.truststore.location")
    if location is not None and not _is_pem(java.get("ssl.truststore.type"), location):
        why = "librdkafka reads certificates as PEM, and this is a store of another kind"
        raise RefusedKafkaOption("ssl.truststore.location", why, _TRUST_MOVE)
    if "ssl.truststore.password" in java:
        raise RefusedKafkaOption(
            "ssl.truststore.password", "a PEM file of certificates has no password", "leave it out"
        )
    return {} if location is None else {"ssl.ca.location": ("ssl.truststore.location", location)}


def _key_store(java: dict[str, str]) -> _Origins:
    location = java.get("ssl.keystore.location")
    kind = java.get("ssl.keystore.type")
    if location is None:
        return {}
    if (kind or "").upper() == "PKCS12" or (kind is None and location.endswith((".p12", ".pfx"))):
        return {"ssl.keystore.location": ("ssl.keystore.location", location)}
    if not _is_pem(kind, location):
        why = "librdkafka reads key stores as PKCS12 or PEM, and this is one of another kind"
        raise RefusedKafkaOption("ssl.keystore.location", why, _KEY_MOVE)
    named = ("ssl.keystore.location", location)
    return {"ssl.key.location": named, "ssl.certificate.location": named}


def _is_pem(kind: str | None, location: str) -> bool:
    # Java treats a store without a type as JKS. A file name with a PEM ending is accepted as PEM.
    return kind.upper() == "PEM" if kind is not None else location.lower().endswith(_PEM_ENDINGS)


def _jaas(java: dict[str, str], native: dict[str, str]) -> _Origins:
    text = java.get("sasl.jaas.config")
    if text is None:
        return {}
    module, options = _parse_jaas(text)
    names = _JAAS_MODULES.get(module)
    if names is None:
        raise RefusedKafkaOption("sasl.jaas.config", "librdkafka has no such login module", _JAAS_NEXT)
    if names is _PASSWORD:
        for needed in names:
            if needed not in options:
                raise RefusedKafkaOption("sasl.jaas.config", f"its {needed} is missing", f"add {needed}=...")
        if "sasl.mechanism" not in native:
            raise MissingOption("kafka.sasl.mechanism", "give PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    found = {names[name]: ("sasl.jaas.config", value) for name, value in options.items() if name in names}
    if module == "OAuthBearerLoginModule":
        found["sasl.oauthbearer.method"] = ("sasl.jaas.config", "oidc")
    return found


def _parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return module name and options, lower-cased.

    Errors never show the text, because a stray quote can expose a secret.
    """
    malformed = RefusedKafkaOption("sasl.jaas.config", "it is not a JAAS configuration", _JAAS_NEXT)
    match = _JAAS.fullmatch(text)
    if match is None:
        raise malformed
    module, rest = match.group(1).rpartition(".")[2], match.group(2)
    options: dict[str, str] = {}
    at = 0
    while at < len(rest):
        option = _JAAS_OPTION.match(rest, at)
        if option is None:
            raise malformed
        name, value = option.groups()
        quoted = value[0] in "\"'"
        options[name.lower()] = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if quoted else value
        at = option.end()
    return module, options


def _login_handler(java: dict[str, str]) -> _Origins:
    name = "sasl.login.callback.handler.class"
    if name not in java:
        return {}
    if java[name].endswith("OAuthBearerLoginCallbackHandler"):
        return {"sasl.oauthbearer.method": (name, "oidc")}
    why = "it names a Java class, and this client is not Java"
    raise RefusedKafkaOption(
        name, why, "give kafka.sasl.oauthbearer.method=oidc and its kafka.sasl.oauthbearer.*"
    )


def _integer(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as cause:
        raise RefusedKafkaOption(name, "it is not a whole number", "give a number of bytes") from cause
