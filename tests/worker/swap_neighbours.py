# SPDX-License-Identifier: Apache-2.0
"""Engines whose memory comes back over links of other GPUs (models.*.medusa.gpu_neighbours): swap_neighbours.py FOLDER."""
import os
import re
import struct
import sys
import time

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, process_words, processes, until

folder = sys.argv[1]
first = free_ports(16)
devices = f"{folder}/devices"
MB = 1 << 20


def config(a, b):
    return f"""
startPort: {first}
medusa: {{gpus: [{{memory: 60MB}}]}}
models:""" + "".join(f"""
  {name}: {{cmd: "{ENGINE} --name {name} --device-mb 4 --weights-mb 32 --weights-seed {seed}", medusa: {{memory: 50MB{more}}}}}
""" for name, seed, more in (("a", 1, a), ("b", 2, b)))


def from_other_devices():
    """Bytes that came to device 0 from others, as hostcuda counts them."""
    with open(devices, "rb") as file:
        return struct.unpack_from("<48Q", file.read(), (128 * 16 + 16) * 8)[2 * 16]


def commands():
    found = [" ".join(process_words(pid)) for pid in processes()]
    ports = {str(port) for port in range(first, first + 16)}
    return [line for line in found if "medusa-swap run " in line and ports & set(re.findall(r"--port (\d+)", line))]


def good(d, model):
    r = d.chat(model)
    check(f"{model}: status, and whether its memory is what it was", (200, True), (r.status, r.json.get("memory")))


env = {"HOSTCUDA_DEVICES": "2", "HOSTCUDA_MEM": "1G", "HOSTCUDA_SHARED": devices, "HOSTCUDA_H2D_GBPS": "0.1"}
d = Daemon(f"{folder}/auto", config(", gpu_neighbours: auto", ""), env=env)
good(d, "a")
good(d, "b")
lines = until("both engines run", lambda: commands() if len(commands()) == 2 else None) or []
check("one is asked to get ready for neighbours", 1, sum("--gpu-neighbours" in line.split(" -- ")[0] for line in lines))
end = time.monotonic() + PATIENCE
while from_other_devices() <= MB and time.monotonic() < end:  # the carrier gets ready beside the swaps
    good(d, "a")
    good(d, "b")
check("bytes came from the other device", True, from_other_devices() > MB)
check("the exit code", 0, d.stop())

before = from_other_devices()
d = Daemon(f"{folder}/off", config("", ""), env=env)
for _ in range(2):
    good(d, "a")
    good(d, "b")
check("without the key none did", before, from_other_devices())
check("the exit code", 0, d.stop())
finish()
