"""Streams and named cursors of the plain client. The API follows Liftbridge's client.

The package publishes, subscribes, administers streams and stores named positions. This package imports
``topics``, ``kafka`` and lower packages. ``client.queues`` uses its producer components.
"""
