"""The work of one consumer: group membership, batches, leases, redeliveries and acks.

Spark's planner and the plain client share this package. It imports ``topics`` and the layers below, and
neither pyspark nor the tracker. The tracker answers through the cursors and redeliveries topics.
"""
