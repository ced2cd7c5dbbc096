"""The Kafka topics that the library reads and writes, one module for each kind of topic, in both directions.

Here are the queue topic, markers, cursors, redeliveries, dead letters and streams. This package imports
``kafka`` and the rooms below. ``consumer``, ``tracker`` and ``admin`` build on it.
"""
