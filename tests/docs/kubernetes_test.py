#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifest of docs/launchers.md, in the place of Kubernetes: kubernetes_test.py LAUNCHERS_MD TRAINER. Each pod's program is started here with the
manifest's variables and those that Kubeflow's training operator sets, torchrun's (PET_*) and torch's own, as for two processes in each pod (nprocPerNode);
volumes are folders, and TRAINER is the command."""
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("SKIPPED: no python3-yaml")
    sys.exit(77)

CONTAINER_NAMES = {"PyTorchJob": "pytorch"}  # which of a pod's containers the operator gives its variables to
LAUNCHERS = ("CROSSDEVICE_", "PET_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_", "TF_CONFIG", "OMPI_", "PMI", "SLURM_")
PROCESSES_PER_POD = 2  # what torchrun would start in each, and the operator counts; without torchrun a pod is one worker
SECRET = b"correct horse battery staple\n"
SECONDS = 60


def manifest_of(guide):
    blocks = re.findall(r"^```yaml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"expected one manifest, found {len(blocks)}"
    return yaml.safe_load(blocks[0])


def pods_of(manifest):
    """(replica type, index among it, what its template specifies), the master first, as ranks count."""
    assert manifest["apiVersion"] == "kubeflow.org/v1" and manifest["kind"] == "PyTorchJob" and manifest["metadata"]["name"], manifest
    assert set(manifest["spec"]) == {"pytorchReplicaSpecs"}, "an elastic job has no fixed number of pods"
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    assert list(replicas) == ["Master", "Worker"] and replicas["Master"]["replicas"] == 1, replicas
    return [(kind, index, spec["template"]["spec"]) for kind, spec in replicas.items() for index in range(spec["replicas"])]


def mounted(pod, folder):
    """{where the container sees it: where it is here}, every volume made as the manifest says; of secrets alone, each with one key."""
    places = {}
    for volume in pod["volumes"]:
        assert set(volume) == {"name", "secret"}, volume
        place = folder / volume["name"]
        place.mkdir(exist_ok=True)
        file = place / "secret"
        if not file.exists():
            file.write_bytes(SECRET)
        file.chmod(volume["secret"]["defaultMode"])
        places[volume["name"]] = place
    (container,) = pod["containers"]
    return {mount["mountPath"]: places[mount["name"]] for mount in container["volumeMounts"]}


def environment_of(pod, rank, count, port, folder):
    (container,) = pod["containers"]
    assert container["name"] == CONTAINER_NAMES["PyTorchJob"], container
    mounts = mounted(pod, folder)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    for variable in container["env"]:
        value = variable["value"]
        for path, place in mounts.items():
            value = re.sub(rf"^{re.escape(path)}(?=/)", str(place), value)
        variables[variable["name"]] = value
    torchrun = {"PET_NNODES": count, "PET_NODE_RANK": rank, "PET_NPROC_PER_NODE": PROCESSES_PER_POD, "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port}
    torch = {"WORLD_SIZE": count * PROCESSES_PER_POD, "RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return variables | {name: str(value) for name, value in (torchrun | torch).items()}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    guide, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
    pods = pods_of(manifest_of(guide.read_text()))
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        started = []
        try:
            for rank, (_, _, pod) in enumerate(pods):
                assert pathlib.PurePosixPath(pod["containers"][0]["command"][0]).is_absolute(), pod
                variables = environment_of(pod, rank, len(pods), port, pathlib.Path(folder))
                assert variables["CROSSDEVICE_SECRET_FILE"].startswith(folder), "the secret lies in no volume"
                started.append(subprocess.Popen([trainer], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            outputs = [process.communicate(timeout=SECONDS)[0] for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
    total = len(pods) * (len(pods) + 1) // 2
    for rank, (process, output) in enumerate(zip(started, outputs)):
        assert process.returncode == 0 and output == f"rank {rank} of {len(pods)}: {total}\n", (rank, process.returncode, output)
    print(f"{len(pods)} pods")


main()
