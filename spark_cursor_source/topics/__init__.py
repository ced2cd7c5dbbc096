"""Kafka topics that the library reads and writes, one module per kind of topic, for reads and writes.

The topics are the queue topic, markers, cursors, redeliveries, dead letters and streams. This package imports
``kafka`` and the packages below it. ``consumer``, ``tracker`` and ``admin`` build on it.
"""
