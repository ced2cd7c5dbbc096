"""A Kafka client library over confluent-kafka: configuration, admin calls, consumers, producers, groups.

It has no knowledge of queues, leases or markers. It converts librdkafka's errors to those of ``errors``. It
imports ``core``, ``options`` and ``wire``. ``topics`` builds on it.
"""
