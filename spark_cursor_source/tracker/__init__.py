"""The tracker: reads markers, advances the state of each subscription partition, and carries out decisions.

The rules are in ``core.tracker``. This package plans its batches, folds markers, and writes redeliveries,
cursors and dead letters in one transaction. It imports ``interop``, ``topics`` and the rooms below.
"""
