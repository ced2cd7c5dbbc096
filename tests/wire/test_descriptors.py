"""The message classes: of the descriptors that protoc makes, with each implementation of protobuf."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tools import protobuf

GENERATED = protobuf.generated()
CHECK = """
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.wire.marker import decode
from google.protobuf.internal import api_implementation
from spark_cursor_source.wire.control_pb2 import Stream
stored = Stream(pause=Stream.Pause(paused=True)).SerializeToString()
print(api_implementation.Type(), Stream.FromString(stored).pause.paused)
try:
    decode(b"key", bytes([0x82, 1, 1, 0xFF]))  # a subscription that is no text
except InvalidMarker as refused:
    print(type(refused).__name__)
"""


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_a_generated_module_is_what_its_proto_file_says(name: str) -> None:
    written = (protobuf.WIRE / name).read_text(encoding="utf-8")
    assert written == GENERATED[name], "run python -m tools.protobuf"


def test_the_classes_need_no_compiled_protobuf() -> None:
    plain = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], env=plain, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["python", "True", "InvalidMarker"]
