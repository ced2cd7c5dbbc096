"""Kafka options, in Java's names or librdkafka's: mapped, passed on, or refused with what to use instead."""

import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from spark_cursor_source.admin import Subscriptions, read_stats
from spark_cursor_source.client import Client
from spark_cursor_source.errors import (
    ConflictingOptions,
    CursorqError,
    InvalidArgument,
    InvalidOption,
    KafkaConfigFileUnreadable,
    MissingOption,
    RefusedKafkaOption,
)
from spark_cursor_source.kafka.config import Role, client_config, open_client
from spark_cursor_source.kafka.config_file import parse_properties
from spark_cursor_source.kafka.config_names import (
    CONSUMER_ONLY,
    EVERY_CLIENT,
    PRODUCER_ONLY,
    RENAMED,
    is_secret,
)
from spark_cursor_source.kafka.config_roles import consumer_config, producer_config, reader_config
from spark_cursor_source.options.kafka import KafkaOptions

BASE = {"bootstrap.servers": "127.0.0.1:1"}
SECRET = "hunter2-do-not-tell"
ROLES: tuple[Role, ...] = ("consumer", "producer", "admin")


def config(options: dict[str, str], role: Role = "consumer") -> dict[str, str]:
    return client_config(KafkaOptions({**BASE, **options}), role)


def text_of(error: BaseException) -> str:
    return str(error) + repr(error) + "".join(traceback.format_exception(error))


def test_each_client_has_what_the_promises_need() -> None:
    assert all(config({}, role) == BASE for role in ROLES)
    assert producer_config(BASE, {}) == {**BASE, "acks": "all", "enable.idempotence": "true"}
    for made in (consumer_config(BASE, {}), reader_config(BASE)):
        assert (made["enable.auto.commit"], made["auto.offset.reset"]) == ("false", "error")


@pytest.mark.parametrize(
    ("java", "value", "native", "translated"),
    [
        ("request.timeout.ms", "5000", "socket.timeout.ms", "5000"),
        ("default.api.timeout.ms", "6000", "socket.timeout.ms", "6000"),
        ("fetch.max.wait.ms", "10", "fetch.wait.max.ms", "10"),
        ("max.partition.fetch.bytes", "9", "fetch.message.max.bytes", "9"),
        ("max.request.size", "2000000", "message.max.bytes", "2000000"),
        ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0"),
        ("receive.buffer.bytes", "65536", "socket.receive.buffer.bytes", "65536"),
        ("session.timeout.ms", "6000", "session.timeout.ms", "6000"),
        ("ssl.endpoint.identification.algorithm", "", "ssl.endpoint.identification.algorithm", "none"),
        ("ssl.truststore.location", "/etc/ca.pem", "ssl.ca.location", "/etc/ca.pem"),
        ("ssl.truststore.certificates", "PEM", "ssl.ca.pem", "PEM"),
        ("ssl.keystore.key", "PEM", "ssl.key.pem", "PEM"),
        ("ssl.keystore.location", "me.p12", "ssl.keystore.location", "me.p12"),
        ("sasl.mechanisms", "PLAIN", "sasl.mechanism", "PLAIN"),
        ("metadata.broker.list", "127.0.0.1:1", "bootstrap.servers", "127.0.0.1:1"),
    ],
)
def test_a_java_name_becomes_librdkafkas(java: str, value: str, native: str, translated: str) -> None:
    result = config({java: value})
    assert result[native] == translated
    assert java == native or java not in result


def test_a_requests_timeout_goes_before_that_of_a_whole_call() -> None:
    both = {"request.timeout.ms": "5000", "default.api.timeout.ms": "6000"}
    assert config(both)["socket.timeout.ms"] == "5000"


def test_a_producers_buffer_is_counted_in_kilobytes_and_rounded_up() -> None:
    assert config({"buffer.memory": "33554433"}, "producer")["queue.buffering.max.kbytes"] == "32769"


def test_a_native_name_passes_and_only_to_a_client_that_reads_it() -> None:
    given = {"queued.min.messages": "7", "linger.ms": "1", "client.id": "me"}
    for role, there in (
        ("consumer", "queued.min.messages"),
        ("producer", "linger.ms"),
        ("admin", "client.id"),
    ):
        result = config(given, role)  # type: ignore[arg-type]  # a literal in a loop
        assert {name for name in given if name in result} == {there, "client.id"}


def test_names_that_spark_lower_cased_or_not_are_the_same() -> None:
    assert client_config({"Bootstrap.Servers": "b:1"})["bootstrap.servers"] == "b:1"


@pytest.mark.parametrize(
    "name",
    [
        "group.id",
        "group.instance.id",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "isolation.level",
        "transactional.id",
        "plugin.library.paths",
        "ssl.engine.location",
        "test.mock.num.brokers",
        "test.mock.broker.rtt",
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
        "interceptor.classes",
        "metric.reporters",
        "partitioner",
        "max.poll.records",
        "ssl.protocol",
        "config.providers.vault.class",
        "error_cb",
        "on_delivery",
        "delivery.report.only.error",
        "sasl.login.callback.handler.class",
        "ssl.truststore.password",
    ],
)
def test_an_option_that_would_break_a_promise_is_refused_with_what_to_use_instead(name: str) -> None:
    for role in ROLES:
        with pytest.raises(
            RefusedKafkaOption, match=rf"Option 'kafka.{name}' is refused: .+\. .+"
        ) as refusal:
            config({name: SECRET}, role)
        assert SECRET not in text_of(refusal.value)


@pytest.mark.parametrize(
    "given",
    [
        {"enable.idempotence": "false"},
        {"acks": "1"},
        {"request.required.acks": "0"},
        {"buffer.memory": "much"},
    ],
)
def test_a_value_that_would_break_a_promise_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(RefusedKafkaOption):
        config(given, "producer")


def test_a_value_that_keeps_the_promise_passes() -> None:
    assert config({"acks": "-1", "enable.idempotence": "TRUE"}, "producer")["acks"] == "-1"


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("sasl.pasword", "sasl.password"),
        ("bootstrap.server", "bootstrap.servers"),
        ("ssl.truststore.locations", "ssl.truststore.location"),
    ],
)
def test_a_misspelt_option_names_the_nearest_and_keeps_its_value_to_itself(typo: str, meant: str) -> None:
    with pytest.raises(RefusedKafkaOption, match=f"Did you mean 'kafka.{meant}'") as refusal:
        config({typo: SECRET})
    assert SECRET not in text_of(refusal.value)


def test_every_name_on_our_lists_is_one_that_librdkafka_takes() -> None:
    for name in CONSUMER_ONLY | PRODUCER_ONLY | EVERY_CLIENT | set(RENAMED.values()):
        with pytest.raises(RefusedKafkaOption) as refusal:
            open_client(Producer, {name: "\x01", "no.such.option": "1"})
        assert refusal.value.option != name or "No such" not in str(refusal.value), name


@pytest.mark.parametrize("value", ["ca.jks", "ca.p12", "cacerts"])
def test_a_trust_store_that_is_no_pem_is_refused_with_the_command_that_converts_it(value: str) -> None:
    with pytest.raises(RefusedKafkaOption, match=r"openssl pkcs12 .*ca\.pem.*kafka\.ssl\.ca\.location"):
        config({"ssl.truststore.location": value, "ssl.truststore.password": SECRET})
    with pytest.raises(RefusedKafkaOption):
        config({"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "JKS"})


def test_a_key_store_is_pkcs12_or_pem() -> None:
    pem = config({"ssl.keystore.location": "me", "ssl.keystore.type": "PEM", "ssl.key.password": SECRET})
    assert (pem["ssl.key.location"], pem["ssl.certificate.location"], pem["ssl.key.password"]) == (
        "me",
        "me",
        SECRET,
    )
    assert "ssl.keystore.type" not in pem
    p12 = config(
        {"ssl.keystore.location": "me", "ssl.keystore.type": "PKCS12", "ssl.keystore.password": SECRET}
    )
    assert (p12["ssl.keystore.location"], p12["ssl.keystore.password"]) == ("me", SECRET)
    with pytest.raises(RefusedKafkaOption, match="PKCS12"):
        config({"ssl.keystore.location": "me.jks", "ssl.keystore.password": SECRET})


JAAS = "org.apache.kafka.common.security"


@pytest.mark.parametrize(
    ("mechanism", "jaas", "found"),
    [
        (
            "PLAIN",
            f'{JAAS}.plain.PlainLoginModule required username="me" password="a;\\"b=c d";',
            {"sasl.username": "me", "sasl.password": 'a;"b=c d'},
        ),
        (
            "SCRAM-SHA-512",
            f"{JAAS}.scram.ScramLoginModule required\n  username=me\n  password='x y' ;",
            {"sasl.username": "me", "sasl.password": "x y"},
        ),
        (
            "GSSAPI",
            'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="k" principal="p";',
            {"sasl.kerberos.keytab": "k", "sasl.kerberos.principal": "p"},
        ),
        (
            "OAUTHBEARER",
            f'{JAAS}.oauthbearer.OAuthBearerLoginModule required clientId="i" clientSecret="s" scope="o";',
            {
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.method": "oidc",
            },
        ),
    ],
)
def test_a_jaas_configuration_becomes_librdkafkas_options(
    mechanism: str, jaas: str, found: dict[str, str]
) -> None:
    result = config({"sasl.mechanism": mechanism, "sasl.jaas.config": jaas})
    assert found.items() <= result.items()
    assert "sasl.jaas.config" not in result


@pytest.mark.parametrize(
    "jaas",
    [
        SECRET,
        f'PlainLoginModule required username="me" password="{SECRET}',
        f'PlainLoginModule required password="{SECRET}";',
        f'software.amazon.msk.auth.iam.IAMLoginModule required key="{SECRET}";',
        f'PlainLoginModule required username="me" password="x" {SECRET};',
        "",
    ],
)
def test_a_jaas_configuration_that_cannot_be_used_is_refused_without_telling_it(jaas: str) -> None:
    with pytest.raises(RefusedKafkaOption) as refusal:
        config({"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})
    assert SECRET not in text_of(refusal.value)


def test_a_password_asks_for_its_mechanism() -> None:
    jaas = f'PlainLoginModule required username="me" password="{SECRET}";'
    with pytest.raises(MissingOption, match=r"kafka\.sasl\.mechanism") as refusal:
        config({"sasl.jaas.config": jaas})
    assert SECRET not in text_of(refusal.value)


@pytest.mark.parametrize(
    "given",
    [
        {
            "sasl.mechanism": "PLAIN",
            "sasl.password": "other",
            "sasl.jaas.config": f'PlainLoginModule required username="me" password="{SECRET}";',
        },
        {"fetch.max.wait.ms": "1", "fetch.wait.max.ms": "2"},
        {"request.timeout.ms": "1000", "socket.timeout.ms": "2000"},
    ],
)
def test_the_same_said_twice_and_differently_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConflictingOptions) as refusal:
        config(given)
    assert SECRET not in text_of(refusal.value)


def test_a_config_file_is_read_where_the_client_is_opened_and_options_go_before_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers=f:1\nsasl.password = {SECRET}\nclient.id: file\nmax.partition.fetch.bytes 7\n"
    )
    kafka = KafkaOptions({"config.file": str(file), "client.id": "option", "fetch.message.max.bytes": "8"})
    result = client_config(kafka)
    assert (result["bootstrap.servers"], result["client.id"], result["sasl.password"]) == (
        "f:1",
        "option",
        SECRET,
    )
    assert result["fetch.message.max.bytes"] == "8"
    assert "config.file" not in result
    assert SECRET not in repr(kafka)


def test_a_config_file_is_as_strict_as_options(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for line in ("group.id=x", "config.file=other", "sasl.pasword=x"):
        file.write_text(f"bootstrap.servers=f:1\n{line}\n")
        with pytest.raises(RefusedKafkaOption):
            client_config({"config.file": str(file)})
    file.write_text("client.id=x")
    with pytest.raises(MissingOption, match=r"kafka\.bootstrap\.servers"):
        client_config({"config.file": str(file)})


def test_a_config_file_that_is_not_there_is_named_with_its_host(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.properties")
    for path in (missing, str(tmp_path), "a\0b"):
        with pytest.raises(KafkaConfigFileUnreadable, match="on every executor") as refusal:
            client_config({"config.file": path})
        assert refusal.value.path == path
        assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def test_a_malformed_config_file_is_refused_by_line_without_telling_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# comment\nsasl.password={SECRET}\\u12\n")
    with pytest.raises(KafkaConfigFileUnreadable, match="line 2") as refusal:
        client_config({"config.file": str(file)})
    assert SECRET not in text_of(refusal.value)


def test_a_properties_file_reads_as_java_reads_it() -> None:
    text = "# c\n! c\n\n a = 1 \r\nb:2\nc 3\nd\ne\\=f = x\\\n   y\\\\\n"
    text += "g=\\u00e4\\t\\q\nh==\n# no \\\ni=4\nj=end\\"
    assert parse_properties(text) == {
        "a": "1 ",
        "b": "2",
        "c": "3",
        "d": "",
        "e=f": "xy\\",
        "g": "ä\tq",
        "h": "=",
        "i": "4",
        "j": "end",
    }
    with pytest.raises(ValueError, match="line 1 has no name"):
        parse_properties("=x")


def test_a_file_in_latin_1_or_utf_8_keeps_its_umlauts(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-8", "utf-8-sig"):
        file = tmp_path / encoding
        file.write_bytes("bootstrap.servers=b:1\nsasl.password=ä".encode(encoding))
        assert client_config({"config.file": str(file)})["sasl.password"] == "ä"


def test_a_log_shows_no_secret_and_nothing_that_could_be_a_misspelt_one() -> None:
    given = {
        "bootstrap.servers": "b:1",
        "group.id": "g",
        "sasl.username": "me",
        "sasl.password": SECRET,
        "sasl.pasword": SECRET,
        "sasl.jaas.config": SECRET,
        "ssl.key.pem": SECRET,
        "ssl.key.password": SECRET,
        "ssl.keystore.key": SECRET,
        "ssl.keystore.password": SECRET,
        "ssl.truststore.password": SECRET,
        "sasl.oauthbearer.config": SECRET,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.assertion.private.key.pem": SECRET,
        "sasl.oauthbearer.assertion.private.key.passphrase": SECRET,
        "sasl.kerberos.kinit.cmd": SECRET,
    }
    assert {name for name in given if not is_secret(name)} == {
        "bootstrap.servers",
        "group.id",
        "sasl.username",
    }


def test_what_librdkafka_refuses_names_the_option() -> None:
    with pytest.raises(RefusedKafkaOption, match=r"kafka\.security\.protocol.*nah") as refusal:
        open_client(Producer, config({"security.protocol": "nah"}, "producer"))
    assert refusal.value.option == "security.protocol"
    with pytest.raises(RefusedKafkaOption, match=r"fetch\.max\.bytes"):
        open_client(Consumer, {**config({"fetch.max.bytes": "5"}), "group.id": "g"})


@pytest.mark.parametrize(
    "given",
    [
        {"security.protocol": "ssl", "ssl.key.pem": SECRET},
        {"security.protocol": SECRET, "sasl.password": SECRET},
    ],
)
def test_what_librdkafka_refuses_never_tells_a_secret(given: dict[str, str]) -> None:
    with pytest.raises(RefusedKafkaOption) as refusal:
        open_client(Producer, config(given, "producer"))
    assert SECRET not in text_of(refusal.value)
    assert isinstance(pickle.loads(pickle.dumps(refusal.value)), CursorqError)


def test_each_role_opens_a_client_without_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    given = {"linger.ms": "1", "queued.min.messages": "7", "fetch.max.wait.ms": "5", "batch.size": "100"}
    makers: list[tuple[Role, Any, dict[str, str]]] = [
        ("consumer", Consumer, {"group.id": "g"}),
        ("producer", Producer, {}),
        ("admin", AdminClient, {}),
    ]
    for role, make, more in makers:
        client = open_client(make, {**config(given, role), **more})
        if role == "consumer":
            client.close()
    assert "CONFWARN" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("broker:9092", "it is not a mapping"),
        (None, "it is not a mapping"),
        ([("bootstrap.servers", "broker:9092")], "it is not a mapping"),
        ({1: "broker:9092"}, "its key 1 is not a text"),
    ],
)
@pytest.mark.parametrize("call", [client_config, read_stats, Subscriptions, Client])
def test_settings_that_are_no_mapping_are_refused_before_brokers_are_asked(
    call: Callable[[Any], object], given: object, why: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"^The argument (kafka|options)=<class .*{why}") as refused:
        call(given)
    assert "broker" not in str(refused.value)


def test_numbers_and_booleans_become_the_texts_that_spark_makes_of_them() -> None:
    given: Any = {"bootstrap.servers": "b:9092", "socket.timeout.ms": 5_000, "enable.ssl.certificate": None}
    given["socket.keepalive.enable"] = True
    config = client_config(given)
    assert (config["socket.timeout.ms"], config["socket.keepalive.enable"]) == ("5000", "true")
    assert "enable.ssl.certificate" not in config
    with pytest.raises(ConflictingOptions, match=r"kafka\.bootstrap\.servers.*given twice") as refused:
        client_config({"bootstrap.servers": "b:9092", "Bootstrap.Servers": "c:9092"})
    assert "9092" not in str(refused.value)
    with pytest.raises(InvalidOption, match=r"^Option 'kafka.bootstrap.servers' is invalid: .* a list"):
        client_config({"bootstrap.servers": ["b:9092"]})  # type: ignore[dict-item]
    with pytest.raises(RefusedKafkaOption, match=r"enable\.idempotence"):
        client_config({"bootstrap.servers": "b:9092", "enable.idempotence": False}, "producer")  # type: ignore[dict-item]
