"""The work of one member of a subscription: membership, batches, leases, redeliveries, and acks.

Spark's planner and the plain client share this room. It imports ``topics`` and the rooms below, and neither
pyspark nor the tracker. The tracker answers it through the cursors and redeliveries topics.
"""
