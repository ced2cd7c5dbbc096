"""Stream planners that start in milliseconds: forks of one process that has imported what they need.

Spark starts each planner as a process of its own. With ``PLACE`` in its environment, that process has a
planner forked and stays until the planner ends. When it ends first, the planner gets the signal with which
Spark ends planners.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
PLACE = "CURSORQ_TEST_PLANNERS"  #: environment variable: the path of the socket that forks planners
_LONGEST = 200_000  # of a request


def have_forked(place: str) -> None:
    """Have this planner forked and never return; return if nobody does that there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(place)
        except OSError:
            return
        request = {"environ": dict(os.environ), "directory": os.getcwd(), "path": [os.getcwd(), *sys.path]}
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        connection.recv(1)  # nothing, when the planner has ended
    os._exit(0)


def serve(place: str) -> None:
    """Fork planners until standard input closes."""
    import importlib

    for name in (MODULE, "spark_cursor_source.spark.reader", "spark_cursor_source.spark.source", "pandas"):
        importlib.import_module(name)
    del sys.modules[MODULE]  # each planner runs it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # planners leave no zombies
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place)
        listener.listen(64)
        while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _plan(connection)
            connection.close()


def _plan(connection: socket.socket) -> None:
    import runpy

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    packet, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 3)
    if len(descriptors) < 3:
        os._exit(1)  # the process that asked has ended
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # SIGTERM for this process as soon as the other end closes.
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([connection], [], [], 0)[0]:
        os._exit(1)
    request = json.loads(packet)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["directory"])
    sys.path[:] = request["path"]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    serve(sys.argv[1])
