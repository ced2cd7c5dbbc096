"""Kafka client options by name: librdkafka's own, Java's equivalents, refused options and secrets."""

from __future__ import annotations

import re

from spark_cursor_source.kafka.token_login import PROVIDER
from spark_cursor_source.options.kafka import CONFIG_FILE


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


#: librdkafka options that only consumers read; a producer logs a warning for each of them
CONSUMER_ONLY = _names(
    """
    check.crcs coordinator.query.interval.ms enable.partition.eof fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.protocol
    group.protocol.type group.remote.assignor heartbeat.interval.ms
    max.poll.interval.ms partition.assignment.strategy queued.max.messages.kbytes queued.min.messages
    session.timeout.ms
    """
)

#: librdkafka options that only producers read
PRODUCER_ONLY = _names(
    """
    acks batch.num.messages batch.size compression.level compression.type
    enable.gapless.guarantee enable.idempotence linger.ms
    message.timeout.ms queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages retries
    sticky.partitioning.linger.ms transaction.timeout.ms
    """
)

#: librdkafka options that all clients read
EVERY_CLIENT = _names(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback client.dns.lookup
    client.id client.rack client.software.name client.software.version connections.max.idle.ms debug
    enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections
    enable.ssl.certificate.verification https.ca.location https.ca.pem internal.termination.signal
    log.connection.close log.thread.name log_level max.in.flight.requests.per.connection
    message.copy.max.bytes message.max.bytes metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metadata.request.timeout.ms
    receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms
    retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm
    ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
    ssl.sigalgs.list statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """
)

#: older librdkafka names and Java names, mapped to the name used here, with the same meaning of the value;
#: with one name per option, settings that are added later override it
RENAMED = {
    "compression.codec": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "max.request.size": "message.max.bytes",
    "message.send.max.retries": "retries",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}

#: Java names that are translated in combination with others, or whose value changes
TRANSLATED = _names(
    """
    buffer.memory default.api.timeout.ms receive.buffer.bytes request.timeout.ms sasl.jaas.config
    sasl.login.callback.handler.class send.buffer.bytes ssl.keystore.type ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
    """
)

_OWN_GROUP = "the source keeps a group of its own per subscription"
_OWN_COMMITS = "offsets are committed by the source when a batch is complete"
_JAVA_CLASS = "it names a Java class, and this client is not Java"
_NATIVE_CODE = "it would load native code into every worker"
_BYTES = "keys and values are delivered as bytes"
_TLS = "librdkafka leaves this to OpenSSL"
_SUBSCRIPTION = "leave it out, and name the reader in the option subscription"
_LEAVE_OUT = "leave it out"

#: option -> (reason of the refusal, replacement)
REFUSED: dict[str, tuple[str, str]] = {
    "group.id": (_OWN_GROUP, _SUBSCRIPTION),
    "group.instance.id": (_OWN_GROUP, _SUBSCRIPTION),
    "enable.auto.commit": (_OWN_COMMITS, _LEAVE_OUT),
    "auto.commit.enable": (_OWN_COMMITS, _LEAVE_OUT),
    "auto.commit.interval.ms": (_OWN_COMMITS, _LEAVE_OUT),
    "enable.auto.offset.store": (_OWN_COMMITS, _LEAVE_OUT),
    "offset.store.method": (_OWN_COMMITS, _LEAVE_OUT),
    "offset.store.path": (_OWN_COMMITS, _LEAVE_OUT),
    "offset.store.sync.interval.ms": (_OWN_COMMITS, _LEAVE_OUT),
    "auto.offset.reset": ("a silent reset would skip messages", "say where to start in startingOffsets"),
    "isolation.level": ("the source has an option for it", "give the option isolation"),
    "transactional.id": ("the tracker fences a second one with an id of its own", _LEAVE_OUT),
    "plugin.library.paths": (_NATIVE_CODE, _LEAVE_OUT),
    "ssl.engine.location": (_NATIVE_CODE, "give the key in kafka.ssl.key.location"),
    "ssl.engine.id": (_NATIVE_CODE, "give the key in kafka.ssl.key.location"),
    "ssl.engine.factory.class": (_JAVA_CLASS, "give PEM files in kafka.ssl.*.location"),
    "delivery.report.only.error": ("a send counts only when the broker has confirmed it", _LEAVE_OUT),
    "produce.offset.report": ("a send counts only when the broker has confirmed it", _LEAVE_OUT),
    "partitioner": ("each record's partition is decided by its key", _LEAVE_OUT),
    "partitioner.class": ("each record's partition is decided by its key", _LEAVE_OUT),
    "partitioner.ignore.keys": ("each record's partition is decided by its key", _LEAVE_OUT),
    "queuing.strategy": ("markers must keep their order", _LEAVE_OUT),
    "key.deserializer": (_BYTES, "cast the columns key and value"),
    "value.deserializer": (_BYTES, "cast the columns key and value"),
    "key.serializer": (_BYTES, "cast the columns key and value"),
    "value.serializer": (_BYTES, "cast the columns key and value"),
    "interceptor.classes": (_JAVA_CLASS, _LEAVE_OUT),
    "metric.reporters": (
        _JAVA_CLASS,
        "leave it out; kafka.statistics.interval.ms gives librdkafka's figures",
    ),
    "security.providers": (_JAVA_CLASS, "give kafka.ssl.providers"),
    "config.providers": (_JAVA_CLASS, "put secrets in a file and name it in kafka.config.file"),
    "sasl.client.callback.handler.class": (_JAVA_CLASS, "give kafka.sasl.username and kafka.sasl.password"),
    "sasl.login.class": (_JAVA_CLASS, "give kafka.sasl.username and kafka.sasl.password"),
    "ssl.protocol": (_TLS, "give kafka.ssl.cipher.suites where a suite matters"),
    "ssl.enabled.protocols": (_TLS, "give kafka.ssl.cipher.suites where a suite matters"),
    "ssl.provider": (_TLS, "give kafka.ssl.providers"),
    "ssl.keymanager.algorithm": (_TLS, _LEAVE_OUT),
    "ssl.trustmanager.algorithm": (_TLS, _LEAVE_OUT),
    "ssl.secure.random.implementation": (_TLS, _LEAVE_OUT),
    "max.poll.records": (
        "librdkafka has no such limit",
        "give maxOffsetsPerTrigger or maxRecordsPerPartition",
    ),
    "max.block.ms": ("librdkafka has no such limit", "give kafka.message.timeout.ms"),
    "exclude.internal.topics": ("topics are chosen by the source", "give subscribe or subscribePattern"),
    "log.queue": ("nobody would read that queue", _LEAVE_OUT),
    CONFIG_FILE: ("a properties file cannot name another one", _LEAVE_OUT),
}

REFUSED_PREFIXES: dict[str, tuple[str, str]] = {
    "test.mock.": ("a mock broker keeps no messages", "start EmbeddedKafka, or `cursorq broker`"),
    "metrics.": (_JAVA_CLASS, "leave it out; kafka.statistics.interval.ms gives librdkafka's figures"),
    "config.providers.": (_JAVA_CLASS, "put secrets in a file and name it in kafka.config.file"),
}

#: names that the Python client takes in addition to librdkafka's; their values are objects, not texts
NOT_TEXT = frozenset({"default.topic.config", "logger", "on_commit", "on_delivery", "opaque", "interceptors"})

KNOWN = CONSUMER_ONLY | PRODUCER_ONLY | EVERY_CLIENT
SUGGESTIBLE = KNOWN | {PROVIDER} | RENAMED.keys() | TRANSLATED

_SECRET = re.compile(
    r"password|passphrase|secret|jaas|credential|\bpem$|^ssl\.keystore\.(key|certificate\.chain)$|oauthbearer\.config$|kinit\.cmd$"
)
_PUBLIC = frozenset({"sasl.oauthbearer.client.credentials.client.id", "https.ca.pem", "ssl.ca.pem"})


def native_name(name: str) -> str:
    """Returns librdkafka's name of an option.

    >>> native_name("Fetch.Max.Wait.Ms")
    'fetch.wait.max.ms'
    """
    return RENAMED.get(name.lower(), name.lower())


def is_secret(name: str) -> bool:
    """True if an option's value must not be shown.

    An unknown name counts as secret, because it may be misspelled.
    """
    if name in _PUBLIC:
        return False
    return bool(_SECRET.search(name)) or name not in SUGGESTIBLE | REFUSED.keys()
