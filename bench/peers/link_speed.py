# SPDX-License-Identifier: Apache-2.0
"""How many bytes per second a shaped link carries each way while both ways are full: two workers of crossdevice-run, in a namespace each, send
each other a plain TCP stream. Also the program that those workers run: link_speed.py FILE."""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

SECONDS = 3.0
SKIPPED_SECONDS = 0.5  # the bucket's burst, and TCP's start
PIECE_BYTES = 1 << 16
ERRORS = (OSError, ValueError, subprocess.SubprocessError)  # of measure()


def measure(tools, rate):
    """Bytes per second of one worker's link, the slower way."""
    import contenders

    with tempfile.TemporaryDirectory(prefix="crossdevice-link-") as directory:
        file = pathlib.Path(directory) / "speed"
        command = [sys.executable, os.path.abspath(__file__), str(file)]
        subprocess.run([tools.program("crossdevice-run"), "--plain", "-n", "2", "--netns", "2", "--rate", rate, "--",
                        str(contenders.HERE / "in-namespace"), contenders.CONGESTION_CONTROL, *command],
                       check=True, timeout=60, capture_output=True)
        speed = min(float(path.read_text()) for path in pathlib.Path(directory).glob("speed.*"))
        if not speed > 0:
            raise ValueError(f"{speed} bytes per second")
        return speed


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


def main():
    connection = connect()
    connection.settimeout(30)
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
    pathlib.Path(f"{sys.argv[1]}.{os.environ['CROSSDEVICE_RANK']}").write_text(str(counted / (last - first)), encoding="utf-8")


if __name__ == "__main__":
    main()
