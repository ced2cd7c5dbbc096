"""Logins on a broker with TLS, whose certificate an authority of its own has signed."""

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql import SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.client import Service, ServiceConfig
from spark_cursor_source.devkit import EmbeddedKafka
from spark_cursor_source.devkit.runtime import find_java
from spark_cursor_source.errors import (
    ConflictingOptions,
    ExtraNotInstalled,
    KafkaFailure,
    KafkaUnavailable,
    RefusedKafkaOption,
)
from spark_cursor_source.kafka import token_login
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config, open_client
from spark_cursor_source.tracker import Tracker
from tests.conftest import READY_S
from tests.kafka.token_provider import SECRET
from tests.spark.harness import start_patiently, wait_until

PASSWORD = "of-the-key-store"
PROVIDER = "tests.kafka.token_provider:token"
_SECURITY = "org.apache.kafka.common.security"
_ADMIN = 'required username="admin" password="of-admin" user_admin="of-admin";'


class Authority:
    """A certificate authority, and a certificate for this machine that it has signed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.certificate, self.store = directory / "ca.pem", directory / "server.p12"
        signed, asked = directory / "server.pem", directory / "server.csr"
        self._keytool("ca", "-genkeypair", "-keyalg", "EC", "-dname", "CN=ca", "-ext", "bc:c")
        self._keytool("ca", "-exportcert", "-rfc", "-file", str(self.certificate))
        self._keytool("server", "-genkeypair", "-keyalg", "EC", "-dname", "CN=broker")
        self._keytool("server", "-certreq", "-file", str(asked))
        options = ("-rfc", "-infile", str(asked), "-outfile", str(signed), "-ext", "san=ip:127.0.0.1")
        self._keytool("ca", "-gencert", *options)
        for name, file in (("ca", self.certificate), ("server", signed)):
            alias = ("-noprompt", "-alias", name, "-file", str(file))
            self._keytool("server", "-importcert", *alias)

    def _keytool(self, store: str, *arguments: str) -> None:
        keytool = str(Path(find_java()[0]).resolve().with_name("keytool"))
        alias = () if "-alias" in arguments else ("-alias", store)
        path = self._directory / f"{store}.p12"
        kept = ("-keystore", str(path), "-storepass", PASSWORD, "-storetype", "PKCS12")
        subprocess.run([keytool, *arguments, *alias, *kept], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure_broker(authority: Authority) -> Iterator[EmbeddedKafka]:
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": authority.store,
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{_SECURITY}.plain.PlainLoginModule {_ADMIN}",
        "listener.name.client.scram-sha-512.sasl.jaas.config": (
            f"{_SECURITY}.scram.ScramLoginModule required;"
        ),
        "listener.name.client.oauthbearer.sasl.jaas.config": (
            f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    with EmbeddedKafka(
        properties=properties, client_config=as_admin(authority), ready_timeout_s=READY_S
    ) as running:
        yield running


def as_admin(authority: Authority) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": "of-admin",
    }


def by_token(broker: EmbeddedKafka, authority: Authority, calls: Path, provider: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "ssl.ca.location": str(authority.certificate),
        "oauth.provider": provider,
        "sasl.oauthbearer.config": str(calls),
    }


@pytest.mark.broker
@pytest.mark.spark
def test_planners_executors_trackers_and_clients_log_in_with_tokens_that_nobody_sees(
    secure_broker: EmbeddedKafka,
    authority: Authority,
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    calls = tmp_path / "calls"
    calls.touch()
    kafka = by_token(secure_broker, authority, calls, PROVIDER)
    ClusterAdmin(client_config(kafka, "admin")).create({"orders": (1, {})})
    control = {f"kafka.{name}": value for name, value in kafka.items()}
    options = {**control, "subscribe": "orders", "subscription": "billing"}
    caplog.set_level(logging.DEBUG)
    config = ServiceConfig(
        bootstrap_servers=secure_broker.bootstrap_servers, message_topic="orders", kafka=kafka
    )
    with Tracker({**control, "trigger": "100ms"}) as tracker:
        with Service(config).queue(subscription="mails").producer() as producer:
            for number in range(20):
                producer.send(b"%d" % number)
        cursorq.register(spark)
        writer = (
            spark.readStream.format("cursorq")
            .options(**options)
            .load()
            .writeStream.foreachBatch(cursorq.AckSink.per_row(lambda message: None, options))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        start_patiently(writer.start).awaitTermination()
        cursors = spark.read.format("cursorq").options(**options, view="cursors").load()
        tracker.check()
        wait_until(lambda: (row := cursors.first()) and row.acked == 20, "all are acked")
        own = calls.read_text().split().count(str(os.getpid()))
        # The tokens are valid for four seconds, so those of the tracker's clients are made again.
        wait_until(lambda: calls.read_text().split().count(str(os.getpid())) > own, "tokens are made anew")
        tracker.check()
    assert len(set(calls.read_text().split())) >= 3, "this process, a planner and an executor"
    token = token_login.with_token_callback(client_config(kafka))["oauth_cb"](str(calls))[0]
    claims = token.split(".")[1][:24]  # the time at its end is another one
    told = caplog.text + "".join(capfd.readouterr())
    assert claims not in told
    assert SECRET not in told


@pytest.mark.broker
def test_a_scram_login_over_tls_works_and_a_wrong_password_is_refused(
    secure_broker: EmbeddedKafka, authority: Authority
) -> None:
    servers = {"bootstrap.servers": secure_broker.bootstrap_servers}
    admin = AdminClient(servers | as_admin(authority))
    user = UserScramCredentialUpsertion(
        "billing", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"of-billing"
    )
    for made in admin.alter_user_scram_credentials([user]).values():
        made.result(timeout=30)
    java = {
        **servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "sasl.mechanism": "SCRAM-SHA-512",
    }
    login = '{}.scram.ScramLoginModule required username="billing" password="{}";'

    def describe(password: str, timeout_ms: int) -> object:
        jaas = {"sasl.jaas.config": login.format(_SECURITY, password)}
        return ClusterAdmin(client_config(java | jaas, "admin"), timeout_ms=timeout_ms).existing(["x"])

    assert describe("of-billing", 30_000) == {}
    with pytest.raises(KafkaFailure) as refused:
        describe("of-nobody", 1_500)
    assert "of-nobody" not in str(refused.value)


@pytest.mark.broker
def test_a_provider_that_fails_is_told_in_the_log_without_its_text(
    secure_broker: EmbeddedKafka, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = by_token(secure_broker, authority, tmp_path / "calls", "tests.kafka.token_provider:no_token")
    with pytest.raises(KafkaUnavailable, match=r"login with the provider .*no_token"):
        ClusterAdmin(client_config(kafka, "admin"), timeout_ms=5_000).existing(["orders"])
    assert "event=token_login_failed provider=tests.kafka.token_provider:no_token error=RuntimeError" in (
        caplog.text
    )
    assert SECRET not in caplog.text


# -- options ---------------------------------------------------------------------------------------------

SERVERS = {"bootstrap.servers": "broker:9093"}


def test_a_provider_sets_mechanism_and_protocol_unless_they_are_given() -> None:
    made = client_config({**SERVERS, "oauth.provider": PROVIDER})
    assert (made["sasl.mechanism"], made["security.protocol"]) == ("OAUTHBEARER", "SASL_SSL")
    given = client_config({**SERVERS, "oauth.provider": PROVIDER, "security.protocol": "SASL_PLAINTEXT"})
    assert given["security.protocol"] == "SASL_PLAINTEXT"


@pytest.mark.parametrize(
    "other", [{"sasl.mechanisms": "PLAIN"}, {"sasl.oauthbearer.method": "oidc"}], ids=str
)
def test_a_provider_is_not_combined_with_another_login(other: dict[str, str]) -> None:
    with pytest.raises(ConflictingOptions, match=r"kafka\.oauth\.provider"):
        client_config({**SERVERS, "oauth.provider": PROVIDER, **other})


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        ("tests.kafka.no_such_module:token", "this process cannot import it"),
        ("tests.kafka.token_provider:no_such_function", "this process cannot import it"),
        ("tests.kafka.token_provider", "is no function"),
        ("tests.kafka.token_provider:SECRET", "is no function"),
    ],
)
def test_a_provider_that_does_not_exist_is_refused_where_a_client_is_opened(provider: str, why: str) -> None:
    config = client_config({**SERVERS, "oauth.provider": provider}, "admin")
    with pytest.raises(RefusedKafkaOption, match=why):
        open_client(AdminClient, config)


@pytest.mark.parametrize(("provider", "extra"), [("msk", "msk"), ("gcp", "gcp")])
def test_a_provider_of_this_package_names_its_extra(
    provider: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = dict.fromkeys(token_login.BUILT_IN, ("no_such_library", token_login.msk_token))
    monkeypatch.setattr(token_login, "BUILT_IN", missing)
    monkeypatch.setitem(token_login.require_library.__globals__["EXTRAS"], "no_such_library", extra)
    with pytest.raises(ExtraNotInstalled, match=rf"spark-cursor-source\[{extra}\]"):
        token_login.with_token_callback({"oauth.provider": provider})


def test_a_token_for_msk_is_a_request_signed_with_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-nobody")
    token, expiry_s = token_login.msk_token("region=eu-west-1")
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "of-nobody" not in url
    assert 60 < expiry_s - time.time() < 3_600


def test_a_token_for_google_has_its_claims_and_the_access_token() -> None:
    token, expiry_s = token_login.google_token("ya29.a", 2_000_000_000.0, "me@project")
    header, claims, access = (
        base64.urlsafe_b64decode(one + "=" * (-len(one) % 4)) for one in token.split(".")
    )
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert json.loads(claims).items() >= {"exp": 2_000_000_000, "sub": "me@project", "scope": "kafka"}.items()
    assert (access, expiry_s) == (b"ya29.a", 2_000_000_000.0)
