# SPDX-License-Identifier: Apache-2.0
"""How long 8 bytes take through two shaped links, and how many bytes per second a link carries each way while both ways are full: two workers of
crossdevice-run, in a namespace each, send each other single messages and then a plain TCP stream. Also the program that those workers run:
link_speed.py FILE."""
import dataclasses
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SECONDS = 3.0
SKIPPED_SECONDS = 0.5  # the bucket's burst, and TCP's start
PIECE_BYTES = 1 << 16
MESSAGE_BYTES = 8
NUM_EXCHANGES = 2000
ERRORS = (OSError, ValueError, TypeError, subprocess.SubprocessError)  # of measure()


@dataclasses.dataclass(frozen=True)
class Link:
    bytes_per_second: float  # each way
    exchange_us: float  # in which each of two workers has the other's 8 bytes


def measure(tools, rate):
    """A Link, as the slower of the two workers sees it."""
    import contenders

    with tempfile.TemporaryDirectory(prefix="crossdevice-link-") as directory:
        file = pathlib.Path(directory) / "speed"
        command = [sys.executable, os.path.abspath(__file__), str(file)]
        subprocess.run([tools.program("crossdevice-run"), "--plain", "-n", "2", "--netns", "2", "--rate", rate, "--",
                        str(contenders.HERE / "in-namespace"), contenders.CONGESTION_CONTROL, *command],
                       check=True, timeout=60, capture_output=True)
        seen = [Link(**json.loads(path.read_text())) for path in pathlib.Path(directory).glob("speed.*")]
        link = Link(min(each.bytes_per_second for each in seen), max(each.exchange_us for each in seen))
        if not (link.bytes_per_second > 0 and link.exchange_us > 0):
            raise ValueError(str(link))
        return link


def connect():
    host, port = os.environ["CROSSDEVICE_CHIEF_ADDRESS"].rsplit(":", 1)
    if os.environ["CROSSDEVICE_RANK"] == "0":
        with socket.create_server((host, int(port))) as server:
            return server.accept()[0]
    for _ in range(200):
        try:
            return socket.create_connection((host, int(port)), timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise TimeoutError("the first worker does not listen")


def send_for(connection, seconds):
    piece = bytes(PIECE_BYTES)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)


def measure_exchange(connection):
    """Microseconds of an exchange, as in a step of an all-reduce: both send at once and wait for the other's message."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    message = bytes(MESSAGE_BYTES)
    samples = []
    for _ in range(NUM_EXCHANGES):
        begin = time.perf_counter()
        connection.sendall(message)
        missing = MESSAGE_BYTES
        while missing > 0:
            piece = connection.recv(missing)
            if not piece:
                raise ConnectionError("the other worker has left")
            missing -= len(piece)
        samples.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(samples)


def measure_speed(connection):
    """Bytes per second that come while as many go."""
    sender = threading.Thread(target=send_for, args=(connection, SECONDS))
    begin = time.monotonic()
    sender.start()
    counted = 0
    first = last = None
    while piece := connection.recv(PIECE_BYTES):
        now = time.monotonic()
        if now - begin < SKIPPED_SECONDS or now - begin > SECONDS:
            continue
        if first is None:
            first = now
        else:
            counted += len(piece)
        last = now
    sender.join()
    return counted / (last - first)


def main():
    connection = connect()
    connection.settimeout(30)
    exchange_us = measure_exchange(connection)
    link = Link(measure_speed(connection), exchange_us)
    pathlib.Path(f"{sys.argv[1]}.{os.environ['CROSSDEVICE_RANK']}").write_text(json.dumps(dataclasses.asdict(link)), encoding="utf-8")


if __name__ == "__main__":
    main()
