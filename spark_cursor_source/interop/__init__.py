"""The marker formats of other systems: kafka-mq-go (V1) and kmq.

It holds their leases, their batch planner, and re-appending for consumers that read only the tail of a topic.
This package imports ``consumer`` and the rooms below.
"""
