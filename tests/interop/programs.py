"""Programs made of a checkout of kafka-mq-go: its tracker, its consumer, its functional suite.

The environment variable ``KAFKA_MQ_GO`` names the checkout, which is only read. Needed are Go 1.21 or later,
a C compiler (confluent-kafka-go brings librdkafka along, for cgo), and a Go module proxy or a filled cache of
modules. Two things are laid over the checkout: the Go code of its protobuf, which it does not contain, and a
suite that does not start the tracker of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "KAFKA_MQ_GO"
NOT_NAMED = (
    f"not run: {VARIABLE} names no checkout of kafka-mq-go; "
    f"git clone https://github.com/splunk/kafka-mq-go, and set {VARIABLE} to that directory"
)

_MODULE = "github.com/splunk/kafka-mq-go"
_PROTO = "queue/proto/kafka_mq_v1.proto"
_SUITE = "tests/functional/kafkamq_suite_test.go"
_SOURCES = Path(__file__).parent / "go"
_GENERATOR = "protoc-gen-gogofaster"
_BUILD_TIMEOUT_S = 1_200  # the first one fetches modules and compiles C


class CannotBuild(Exception):
    """Something that it takes is missing, or a build failed; the text says which."""


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Paths of the programs."""

    tracker: Path
    consumer: Path
    suite: Path


def build(checkout: Path, directory: Path) -> Programs:
    """Build the programs into a directory.

    Raises:
        CannotBuild
    """
    for needed in ("go.mod", _PROTO, _SUITE):
        if not (checkout / needed).is_file():
            why = f"{VARIABLE}={checkout} is no checkout of kafka-mq-go: it has no {needed}"
            raise CannotBuild(why)
    go = _found("go", "install Go 1.21 or later", "/usr/local/go/bin/go")
    _found(os.environ.get("CC", "gcc"), "install a C compiler, or name it in CC")
    module = directory / "go"
    shutil.copytree(_SOURCES, module)

    def run(*command: str) -> None:
        _run(*command, cwd=module)

    run(go, "mod", "edit", "-replace", f"{_MODULE}={checkout.resolve()}")
    run(go, "build", "-mod=mod", "-o", "bin/", f"github.com/gogo/protobuf/{_GENERATOR}")
    generated = module / "generated"
    generated.mkdir()
    plugin = f"--plugin={_GENERATOR}={module / 'bin' / _GENERATOR}"
    protoc = (sys.executable, "-m", "grpc_tools.protoc", "-I", str(checkout), plugin)
    run(*protoc, f"--gogofaster_out={generated}", _PROTO)
    overlay = ("-mod=mod", "-overlay", str(_overlay(checkout.resolve(), generated)))
    run(go, "build", *overlay, "-o", "bin/", "./tracker", "./consumer")
    run(go, "test", "-c", *overlay, "-o", "bin/suite", f"{_MODULE}/tests/functional")
    programs = module / "bin"
    return Programs(tracker=programs / "tracker", consumer=programs / "consumer", suite=programs / "suite")


def configure(
    directory: Path, *, servers: str, queue: str, markers: str, lease_ms: int, offsets_per_commit: int = 10
) -> Path:
    """The configuration file of a queue, where their suite looks for it."""
    config = directory / "config" / "config.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(
        f"bootstrap-servers: {servers}\n"
        f"message-topic: {queue}\n"
        f"marker-topic: {markers}\n"
        f"redelivery-timeout: {lease_ms}\n"
        "consumer-receive-buffer-capacity: 1\n"
        "consumer-next-message-timeout: 500\n"
        "consumer-max-messages-per-commit: 10\n"
        "redelivery-tracker:\n"
        "  use-now-if-no-marker-seen: 500\n"
        f"  num-offsets-per-commit: {offsets_per_commit}\n"
    )
    return config


@contextmanager
def running(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A program that runs as long as the block, and must not end before; its output is in ``log``."""
    whole = {**os.environ, **environment}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=whole) as process,
    ):
        try:
            yield
            assert process.poll() is None, f"{command[0]} has ended: {log.read_text()[-3_000:]}"
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _overlay(checkout: Path, generated: Path) -> Path:
    """The file that tells Go what to read in the place of files of the checkout."""
    (proto,) = generated.rglob("*.pb.go")
    suite = generated / "suite_test.go"
    text = (checkout / _SUITE).read_text(encoding="utf-8")
    for call in ("\tstartRedeliveryTracker()\n", "\tstopRedliveryTracker()\n"):
        if text.count(call) != 1:
            raise CannotBuild(f"{_SUITE} is another than the one of 2021-09: it has no {call.strip()}")
        text = text.replace(call, "")
    suite.write_text(text, encoding="utf-8")
    replaced = {
        str((checkout / _PROTO).with_suffix(".pb.go")): str(proto),
        str(checkout / _SUITE): str(suite),
    }
    file = generated / "overlay.json"
    file.write_text(json.dumps({"Replace": replaced}), encoding="utf-8")
    return file


def _found(program: str, next_move: str, *usual: str) -> str:
    for candidate in (program, *usual):
        if (path := shutil.which(candidate)) is not None:
            return path
    raise CannotBuild(f"there is no program '{program}': {next_move}")


def _run(*command: str, cwd: Path) -> None:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout)[-2_000:]
        raise CannotBuild(f"{' '.join(command[:3])} ... failed:\n{said}")
