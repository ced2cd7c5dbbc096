"""``python -m spark_cursor_source.cli``, where ``cursorq`` is not installed."""

from __future__ import annotations

import sys

from spark_cursor_source.cli import main

sys.exit(main())
