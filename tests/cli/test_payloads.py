"""The verbs that show payloads, with values in Avro and Protobuf."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_cursor_source.cli import main
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire import cursor as cursor_wire
from tests.kafka.control_plane import Control, cell_of, produce
from tests.payload_schemas import CONFLUENT, avro_order, avro_schema, protobuf_descriptor, protobuf_order

Said = pytest.CaptureFixture[str]


@pytest.fixture
def shop(control: Control) -> Control:
    """Values in Avro, with and without a schema id, in Protobuf, and as text; and one dead letter."""
    dead = f"{control.queue}-billing-DLQ"
    ClusterAdmin(control.config).create({control.queue: (1, {}), dead: (1, {})})
    values = [avro_order(17), CONFLUENT + avro_order(18), protobuf_order(19), b"plain text"]
    produce(control.config, control.queue, [{"value": value} for value in values])
    cell = cell_of(control.queue)
    cursor = CursorSnapshot(cell=cell, read_position=1, next_marker=0)
    produce(control.config, control.cursors, [{"key": cell.key, "value": cursor_wire.encode(cursor)}])
    headers = [
        ("cursorq-reason", b"rejected"),
        ("cursorq-topic", control.queue.encode()),
        ("cursorq-partition", b"0"),
        ("cursorq-offset", b"0"),
        ("cursorq-subscription", b"billing"),
    ]
    produce(control.config, dead, [{"value": values[0], "headers": headers}])
    return control


@pytest.mark.broker
def test_values_with_a_schema_are_shown_as_json(
    shop: Control, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--bootstrap-servers", shop.config["bootstrap.servers"], "--cursors-topic", shop.cursors]
    flags += ["--markers-topic", shop.markers, "--payload"]
    avro = ["--avro-schema", str(avro_schema(tmp_path))]

    def said(*words: str) -> str:
        assert main([*words, *flags]) == 0
        return capsys.readouterr().out

    for offset in (0, 1):
        text = said("message", f"{shop.queue}/0/{offset}", *avro)
        assert f'value (decoded from Avro): {{"order": {17 + offset}, "card": "4711"' in text
    text = said("message", f"{shop.queue}/0/3", *avro)
    assert "value (not decoded from Avro: it has another schema, or is cut): plain text" in text
    masked = json.loads(said("message", f"{shop.queue}/0/0", *avro, "--mask-field", "card", "--json"))
    assert json.loads(masked["value"])["card"] == "***"
    assert masked["value_note"] == "decoded from Avro"
    assert '"order": 17' in said("dead", "show", f"{shop.queue}-billing-DLQ", "0/0", *avro)
    lines = said("tail", shop.queue, *avro).splitlines()
    assert '"order": 17' in lines[0]
    assert "plain text  (not decoded from Avro: " in lines[-1]

    monkeypatch.setenv("CURSORQ_PROTOBUF_DESCRIPTOR", str(protobuf_descriptor(tmp_path)))
    monkeypatch.setenv("CURSORQ_PROTOBUF_MESSAGE", "Order")
    lines = said("tail", shop.queue, "--json").splitlines()
    assert json.loads(json.loads(lines[2])["value"]) == {"order_id": 19, "card": "4711"}
    assert json.loads(lines[2])["value_note"] == "decoded from Protobuf"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--protobuf-message", "Order"], "give --protobuf-descriptor and --protobuf-message together"),
        (
            ["--avro-schema", "a", "--protobuf-descriptor", "b", "--protobuf-message", "c"],
            "give a schema of Avro or of Protobuf",
        ),
    ],
)
def test_schemas_that_do_not_go_together_are_refused(options: list[str], told: str, capsys: Said) -> None:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["tail", "orders", *options]))
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_schema_file_that_is_missing_is_one_line(capsys: Said) -> None:
    assert main(["tail", "orders", "--avro-schema", "/nowhere/a.avsc"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "No such file" in error
