"""Every option that a user can set: parsed once, strictly, into frozen values.

An unknown key or a bad value raises an error that names the next move. This package imports ``core`` and
``errors``. The rooms above receive parsed options and never parse text themselves.
"""
