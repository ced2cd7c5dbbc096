"""Messages with header names that are not UTF-8. C clients can write them, confluent-kafka cannot."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_void_p, create_string_buffer
from pathlib import Path

import confluent_kafka

_TOPIC, _PARTITION, _VALUE, _MSGFLAGS, _HEADER = 1, 3, 4, 7, 9  # of rd_kafka_vtype_t
_COPY = 2  # RD_KAFKA_MSG_F_COPY


def produce_with_headers(
    servers: str, topic: str, value: bytes, headers: list[tuple[bytes, bytes | None]], *, times: int = 1
) -> None:
    """Writes a message to partition 0, maybe many times, with the library of confluent-kafka itself."""
    libraries = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    client = ctypes.CDLL(str(next(libraries.glob("librdkafka*"))))
    client.rd_kafka_conf_new.restype = client.rd_kafka_new.restype = c_void_p
    why = create_string_buffer(512)
    conf = c_void_p(client.rd_kafka_conf_new())
    client.rd_kafka_conf_set(conf, b"bootstrap.servers", servers.encode(), why, c_size_t(512))
    producer = c_void_p(client.rd_kafka_new(c_int(0), conf, why, c_size_t(512)))
    assert producer, why.value
    record = [
        *(c_int(_TOPIC), topic.encode(), c_int(_PARTITION), c_int(0)),
        *(c_int(_VALUE), value, c_size_t(len(value)), c_int(_MSGFLAGS), c_int(_COPY)),
    ]
    for name, content in headers:
        record += [c_int(_HEADER), name, content, c_size_t(len(content or b""))]
    for _ in range(times):
        assert client.rd_kafka_producev(producer, *record, c_int(0)) == 0
    assert client.rd_kafka_flush(producer, c_int(30_000)) == 0
    client.rd_kafka_destroy(producer)
