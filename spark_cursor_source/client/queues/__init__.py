"""Queues of the plain client: send messages, receive them under a lease, and settle each message.

The API follows kafka-mq-go. This package imports ``consumer``, ``interop``, ``topics`` and lower packages.
"""
