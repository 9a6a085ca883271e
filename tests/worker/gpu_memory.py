# SPDX-License-Identifier: Apache-2.0
"""What is in use on a GPU in truth, by other programs and by engines that have more than their models state: gpu_memory.py FOLDER. NVML is that of
the tests, and says what hostcuda's device has."""
import os
import subprocess
import sys
import threading
import time

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
MIB = 1 << 20
GPU = 100 * MIB
env = {"HOSTCUDA_MEM": str(GPU), "HOSTCUDA_SHARED": f"{folder}/devices",
       "LD_LIBRARY_PATH": f"{os.environ['LD_LIBRARY_PATH']}:{os.environ['MEDUSA_BUILD']}/tests/nvml"}
port = free_ports(8)
MODELS = {"a": (40, 40), "b": (40, 40), "small": (10, 10), "liar": (10, 40)} # MiB that are stated, and in truth
OTHER = """
import ctypes, sys
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(sys.argv[1]) << 20)) == 0
print("has it", flush=True)
sys.stdin.read()
"""


def config(more="", gpu="", memory="100MiB"):
    return f"startPort: {port}\nmedusa: {{gpus: [{{memory: {memory}{gpu}}}], policies: {{preloading: none}}, retries: 0{more}}}\nmodels:\n" + "".join(
        f'  {name}: {{cmd: "{ENGINE} --name {name} --device-mb {real}", medusa: {{memory: {stated}MiB, swap: off}}}}\n'
        for name, (stated, real) in MODELS.items())


def foreign():
    return d.tell("status")["gpus"][0]["foreign_bytes"]


def ask(*models):
    """Those that were not answered."""
    return [(model, r.status, r.body) for model in models for r in [d.chat(model)] if r.status != 200]


class Other:
    """Another program on the device."""

    def __init__(self, mib=15):
        self.process = subprocess.Popen([sys.executable, "-c", OTHER, str(mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **env})
        check("another program", b"has it\n", self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        check("its end", 0, self.process.wait(20))


d = Daemon(f"{folder}/worker", config(), env=env)
check("two models", [], ask("a", "b"))
other = Other()
until("what it has is seen", lambda: foreign() == 15 * MIB)
check("15 MiB are not worth a word in the log", False, "beyond what" in d.stderr())
check("but in the status", True, ", by others 15.7 MB;" in d.ctl("status").stdout)
metrics = d.get("/metrics").body.decode().splitlines()
for line in (f'medusa_worker_gpu_limit_bytes{{gpu="0"}} {100 * MIB}', f'medusa_worker_gpu_used_bytes{{gpu="0"}} {80 * MIB}', f'medusa_worker_gpu_foreign_bytes{{gpu="0"}} {15 * MIB}',
             f'llamaswap_gpu_memory_used_bytes{{id="0",name="hostcuda",uuid=""}} {95 * MIB}', f'llamaswap_gpu_memory_total_bytes{{id="0",name="hostcuda",uuid=""}} {100 * MIB}'):
    check(f"/metrics: {line}", True, line in metrics)
wanted = {"id": 0, "name": "hostcuda", "uuid": "", "mem_used_mb": 95, "mem_total_mb": 100}
until("the same in samples", lambda: any(wanted.items() <= sample.items() for sample in d.get("/api/performance").json["gpu_stats"] or []))
check("a model for which there would be no room", [], ask("small"))
check("comes in the place of one that is idle", (True, 1), ("small" in d.running(), len({"a", "b"} & set(d.running()))))
other.end()
until("it has gone", lambda: foreign() == 0)
check("all fit", ([], 3), (ask("a", "b", "small"), len(d.running())))
check("unloading", 0, d.ctl("unload", "--all").returncode)
check("a model that has more than it states", [], ask("liar"))
until("that is seen", lambda: foreign() == 30 * MIB)
until("and said", lambda: "bytes are in use beyond what models have by medusa.memory" in d.stderr())
check("others take no room that is not there", [], ask("a", "b"))
check("the end", 0, d.stop())

# Another program has so much that a model has no room, although all others may leave.
d = Daemon(f"{folder}/full", config().replace("swap: off", "swap: off, max_wait: 2s"), env=env)
check("a small one", [], ask("small"))
other = Other(70)
until("what it has is seen", lambda: foreign() == 70 * MIB)
lack = f"others have {70 * MIB} of the {100 * MIB} bytes of GPU 0, and it needs {40 * MIB} (medusa.measure_memory)"
r = d.chat("a")
check("a refusal that says why", (504, "waited_too_long", f"model a found no room in time: {lack}"), (r.status, r.json["error"]["code"], r.json["error"]["message"]))
r = d.get("/health?model=a")
check("what /health says", (503, f"model a: a request would wait for room: {lack}"), (r.status, r.body.decode()))
check("the small one is served", [], ask("small"))
check("and has not been stopped for nothing", (1, 1, 0), tuple(m["loads"] + m["failures"] for m in d.tell("models")["models"] if m["model"] == "small") + (len(d.running()), sum(
    m["loads"] for m in d.tell("models")["models"] if m["model"] == "a")))
other.end()
until("it has gone", lambda: foreign() == 0)
check("there is room", [], ask("a"))
check("the end", 0, d.stop())
d = Daemon(f"{folder}/wait", config().replace("models:", "sendLoadingState: true\nmodels:"), env=env)
other = Other(70)
until("what it has is seen", lambda: foreign() == 70 * MIB)
replies = []
client = threading.Thread(target=lambda: replies.append(d.chat("a", stream=True)))
client.start()
until("it waits", lambda: d.tell("status")["waiting"] == 1)
check("nothing is started", {}, d.running())
other.end()
client.join()
check("the client reads for what it waits", (200, True), (replies[0].status, f"waiting for room: {lack}".encode() in replies[0].body))
check("and is served", True, b"data: [DONE]" in replies[0].body)
check("the end", 0, d.stop())

d = Daemon(f"{folder}/less", config(memory="80MiB"), env=env)
other = Other()
check("what medusa.gpus leaves to others", [], ask("a"))
time.sleep(3)
check("is no news", 0, foreign())
check("the end", 0, d.stop())

d = Daemon(f"{folder}/off", config(", measure_memory: false"), env=env)
time.sleep(2)
check("not measured", 0, foreign())
check("the end", 0, d.stop())
other.end()

d = Daemon(f"{folder}/waits", config(), env={**env, "NVML_WAITS": "1"})
check("an NVML that never answers holds nobody up", [], ask("a", "b"))
check("nor the end", 0, d.stop())

d = Daemon(f"{folder}/unknown", config(gpu=", uuid: GPU-1"), env=env)
until("a GPU that NVML does not know", lambda: "GPU 0: what is in use there is not measured, because NVML does not know which one it is" in d.stderr())
check("the end", 0, d.stop())
finish()
