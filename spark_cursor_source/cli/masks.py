"""Options of the verbs that show payloads: ``--mask`` and ``--mask-field``."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_cursor_source.core.payload_mask import PayloadMask

MASK_FIELDS = "CURSORQ_MASK_FIELDS"  #: variable with names of fields, separated by spaces

MaskField = Annotated[
    list[str] | None,
    typer.Option(
        "--mask-field",
        metavar="NAME",
        envvar=MASK_FIELDS,
        show_envvar=False,
        help=f"hide this field of JSON payloads, and the header of this name; repeated; or in {MASK_FIELDS}",
    ),
]
Mask = Annotated[bool, typer.Option("--mask", help="hide keys, values and headers")]


def mask_of(fields: list[str] | None, everything: bool) -> PayloadMask:
    """Returns the mask of the options of a verb."""
    if "" in (fields or ()):
        raise typer.BadParameter("it is empty; give the name of a field", param_hint="'--mask-field'")
    return PayloadMask(fields=frozenset(fields or ()), everything=everything)
