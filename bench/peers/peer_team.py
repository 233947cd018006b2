# SPDX-License-Identifier: Apache-2.0
"""How the workers of a peer in Python, started by crossdevice-run, tell each other things outside their measurements: by files in the empty
directory that PEER_STORE names."""
import json
import os
import socket
import time

TIMEOUT_SECONDS = 300


class Team:
    def __init__(self):
        self.rank = int(os.environ["CROSSDEVICE_RANK"])
        self.num_workers = int(os.environ["CROSSDEVICE_NUM_WORKERS"])
        self.num_hosts = self.num_workers // int(os.environ["CROSSDEVICE_LOCAL_NUM_WORKERS"])
        self.chief_address = os.environ["CROSSDEVICE_CHIEF_ADDRESS"]
        self.interface = os.environ.get("CROSSDEVICE_SOCKET_IFNAME", "lo")
        self._store = os.environ["PEER_STORE"]
        self._count = 0

    def all_gather(self, value):
        """What every worker gave, by rank; anything that JSON can hold. Collective."""
        self._count += 1
        mine = self._path(self.rank)
        with open(mine + ".part", "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.rename(mine + ".part", mine)
        return [self._wait_for(rank) for rank in range(self.num_workers)]

    def slowest(self, samples):
        return [max(times) for times in zip(*self.all_gather(samples), strict=True)]

    def free_address(self):
        """Of a port on this worker's interface that nobody listens at now."""
        host = self.chief_address.rsplit(":", 1)[0]
        if self.num_hosts > 1:  # the namespaces' addresses follow their numbers
            host = f"{host.rsplit('.', 1)[0]}.{int(host.rsplit('.', 1)[1]) + self.rank}"
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"{host}:{probe.getsockname()[1]}"

    def _path(self, rank):
        return os.path.join(self._store, f"{self._count}-{rank}.json")

    def _wait_for(self, rank):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        path = self._path(rank)
        while not os.path.exists(path):
            if time.monotonic() > deadline:
                raise TimeoutError(f"worker {rank} has not written {path} within {TIMEOUT_SECONDS} s")
            time.sleep(0.002)
        with open(path, encoding="utf-8") as file:
            return json.load(file)
