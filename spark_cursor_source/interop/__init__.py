"""Marker formats of other systems: kafka-mq-go (V1) and kmq.

The package contains their leases, the V1 batch planner, and re-appending for consumers that read only the
tail of a topic. It imports ``consumer`` and the layers below.
"""
