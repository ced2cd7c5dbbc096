"""All user options, parsed once and strictly into frozen values.

An unknown key or a bad value raises an error that names the next step. This package imports ``core`` and
``errors``. The packages above receive parsed options and never parse text themselves.
"""
