"""``python -m spark_cursor_source.cli``, for environments without the ``cursorq`` script."""

from __future__ import annotations

import sys

from spark_cursor_source.cli import main

sys.exit(main())
