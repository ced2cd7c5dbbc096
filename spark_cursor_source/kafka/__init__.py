"""A Kafka client library over confluent-kafka: configuration, admin calls, consumers, producers, groups.

It knows nothing of queues, leases or markers. It turns librdkafka's errors into ``errors``. It imports
``core``, ``options`` and ``wire``. ``topics`` builds on it.
"""
