# SPDX-License-Identifier: Apache-2.0
"""Weights that the scheduler counts once for all engines that have them (medusa.backbones): shared_budget.py FOLDER. What is
counted too low would take more than the configured memory, of which the device has more, and what is counted too high runs fewer engines."""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys

from daemon import Daemon, check, finish, free_ports, until
from reference import ENGINE, offline, prompt_of

folder = sys.argv[1]
GPU, BACKBONE, OWN = 84_000_000, 25_500_000, 19_200_000  # the last two are 25,165,824 and 18,984,960 in truth
OWN_SWAPPED = 27_300_000  # 27,262,976: medusa-swap takes pages of 2 MiB for it
OTHERS = {"little": (45_000_000, 32), "middle": (60_000_000, 240), "big": (80_000_000, 512)}  # with weights of their own: memory, blocks of the KV cache
TOKENS = 8
SHAPE = f"{folder}/shape.yaml"
with open(SHAPE, "w", encoding="utf-8") as recipe:
    recipe.write("hidden_size: 512\nintermediate_size: 1408\nlayers: 4\nheads: 8\nkv_heads: 2\nhead_dim: 64\nvocabulary: 300\nmax_context: 1024\n"
                 "rope_theta: 10000\nrope_interleaved: false\nrms_epsilon: 1e-5\ntie_embeddings: false\nblock_size: 16\nscale: 0.2\n")
MODEL = ["--recipe", SHAPE, "--seed", "7", "--max-context", "256"]
want = offline(folder, MODEL, 1, TOKENS, "--batches", "1,2")[0]
env = {"HOSTCUDA_SHARED": f"{folder}/ledger", "HOSTCUDA_MEM": str(5 * GPU)}
port = free_ports(8)


def config(backbone=BACKBONE, shared="abcd", swap="off", own=OWN, gpus=1):
    engine = f"{ENGINE} {' '.join(MODEL)} --batches 1,2 --serve 127.0.0.1:${{PORT}}"
    text = f"startPort: {port}\nmedusa:\n  gpus: [{', '.join([f'{{memory: {GPU}B}}'] * gpus)}]\n  policies: {{preloading: none}}\n  adopt_time: 60s\n  retries: 0\n  state: {folder}/state.db\n"
    text += f"  backbones: {{q: {{memory: {backbone}B}}}}\nmodels:\n"
    for name in shared:
        text += (f"  {name}:\n    cmd: \"{engine} --share q --kv-blocks 32 --served-name {name}\"\n"
                 f"    cmdStop: \"sh -c 'sleep {0.5 if name == 'a' else 0}; kill ${{PID}}'\"\n"  # the room of one is free late
                 f"    medusa: {{memory: {own}B, share: on, backbone: q, swap: {swap}}}\n")
    for name, (memory, blocks) in OTHERS.items():
        text += (f"  {name}:\n    cmd: \"{engine} --kv-blocks {blocks} --served-name {name}\"\n"
                 f"    medusa: {{memory: {memory}B, swap: off}}\n")
    return text


def most_on_device():
    """That all processes had together at one time, by hostcuda's account (struct ledger in hostcuda/shared_devices.c)."""
    with open(env["HOSTCUDA_SHARED"], "rb") as ledger:
        ledger.seek(128 * 16 * 8)
        return struct.unpack("Q", ledger.read(8))[0]


def answer(model):
    r = d.ask("POST", "/v1/completions", {"model": model, "prompt": prompt_of(0, 7, 300), "max_tokens": TOKENS, "return_token_ids": True})
    return r.json["choices"][0].get("token_ids") if r.status == 200 else (r.status, r.json)


def answers(models):
    return [model for model in models if answer(model) != want]


def running():
    return sorted(name for name, state in d.running().items() if state == "ready")


def held():
    said = subprocess.run(["medusa-backbone", "status", "--json", "--socket", f"{d.control}.engines/backbone.sock"], capture_output=True, text=True,
                          timeout=60)
    return [one["readers"] for one in map(json.loads, said.stdout.splitlines())]


d = Daemon(f"{folder}/worker", config(), env=env)
check("three models", [], answers("abc"))
check("fit at one time, with one backbone", (["a", "b", "c"], [3]), (running(), held()))
check("a fourth one", [], answers("d"))
check("takes the place of one", (3, True, [3]), (len(running()), "d" in running(), held()))
for turn in range(2):
    check("one that needs the backbone's room", [], answers(["big"]))
    check("has it when all of its engines have ended", (["big"], []), (running(), held()))
    check("and back", [], answers("abc"))
    check("with the backbone", (["a", "b", "c"], [3]), (running(), held()))

check("one that needs all", [], answers(["big"]))
check("one engine with the backbone", ([], ["a"]), (answers("a"), running()))
check("one that needs its room, and not all of it", ([], ["middle"]), (answers(["middle"]), running()))
check("three models", [], answers("abc"))

# ---- an engine is killed: the backbone stays with the others ----
subprocess.run(["pkill", "-KILL", "-f", f"^{ENGINE} .*{SHAPE}.*--served-name a"], check=True)
until("its end was seen", lambda: "a" not in running())
check("it comes again", ([], ["a", "b", "c"]), (answers("abc"), running()))

# ---- the next daemon counts the same ----
d.stop(signal.SIGKILL)
d = Daemon(f"{folder}/worker", config(), env=env)
until("engines are adopted", lambda: running() == ["a", "b", "c"])
until("their memory, too", lambda: held() == [3])
check("one that is no friend of theirs takes the place of all", ([], ["little"]), (answers(["little"]), running()))
check("three models", [], answers("abc"))
check("a fourth one", [], answers("d"))
check("takes the place of one", (3, True), (len(running()), "d" in running()))
check("one that needs all", ([], ["big"]), (answers(["big"]), running()))

# ---- what was recorded can be replayed ----
check("three models", [], answers("abc"))
trace = d.ctl("trace", "--since", "1h", "--to", f"{folder}/trace")
check(f"a trace ({trace.stderr})", 0, trace.returncode)
with open(f"{folder}/trace/functions.yaml", encoding="utf-8") as file:
    text = file.read()
check("the backbone is in it, once", (1, 4), (text.count(f"weights: {BACKBONE}B, in_host: true"), text.count(f", backbone: \"q (shared, {BACKBONE} bytes)\"")))
replayed = subprocess.run([*trace.stdout.splitlines()[-1].split(), "--quiet"], capture_output=True, text=True, check=False)
check("the simulator takes it", (0, ""), (replayed.returncode, replayed.stderr))

# ---- reload: a backbone of another size is another one ----
d.write_config(config(backbone=40_000_000))
check("a reload", 0, d.ctl("reload").returncode)
check("three models", [], answers("abc"))
check("two fit now", 2, len(running()))
d.write_config(config(shared="ab"))
check("a reload back", 0, d.ctl("reload").returncode)
check("two models, and the large one", ([], ["big"]), (answers("ab") + answers(["big"]), running()))
check("no room was given away that was not free", True, GPU * 0.9 < most_on_device() <= GPU)
check("the end", 0, d.stop())

# ---- swapped, an engine gives up all but the backbone ----
def processes():
    found = subprocess.run(["pgrep", "-f", f"^{ENGINE} .*{SHAPE}.*--share"], capture_output=True, text=True, check=False).stdout.split()
    return sorted(map(int, found))


d = Daemon(f"{folder}/swapped", config(shared="abc", swap="on", own=OWN_SWAPPED), env=env)
check("three models", [], answers("abc"))
before = processes()
check("of which two fit", (3, 2, [3]), (len(before), len(running()), held()))
check("come and go", [], answers("abcabcba"))
check("in the same engines", (before, [3]), (processes(), held()))
check("one that needs the backbone's room", ([], ["big"]), (answers(["big"]), running()))
check("ends those that are swapped, too", ([], []), (processes(), held()))
check("and back", [], answers("abc"))
check("no engine counts as failed", 0, sum(one["failures"] for one in d.tell("models")["models"]))
before = processes()
d.stop(signal.SIGKILL)
d = Daemon(f"{folder}/swapped", config(shared="abc", swap="on", own=OWN_SWAPPED), env=env)
until("engines are adopted", lambda: len(running()) == 2 and held() == [3])
check("all go on", ([], before), (answers("abc"), processes()))
check("one that is no friend of theirs takes the place of all", ([], []), (answers(["little"]), [name for name in running() if name != "little"]))
check("no room was given away that was not free", True, GPU * 0.9 < most_on_device() <= GPU)
check("the end", 0, d.stop())

# ---- with two GPUs, engines go to where their backbone is ----
d = Daemon(f"{folder}/two", config(gpus=2), env={**env, "HOSTCUDA_DEVICES": "2"})
check("models", [], answers(["a", "little", "b", "c"]))
check("and their GPUs", {"a": 0, "b": 0, "c": 0, "little": 1}, {one["model"]: one["gpu"] for one in d.tell("models")["models"] if one["state"] == "ready"})
check("the end", 0, d.stop())

# ---- without a broker there is no room for weights of its own ----
beside = f"{folder}/beside"
os.makedirs(beside)
for name in os.listdir(f"{os.environ['MEDUSA_BUILD']}/bin"):
    shutil.copy(f"{os.environ['MEDUSA_BUILD']}/bin/{name}", f"{beside}/{name}")
with open(f"{beside}/medusa-backbone", "w", encoding="utf-8") as file:
    file.write("#!/bin/sh\nexit 7\n")
os.environ["PATH"] = f"{beside}:{os.environ['PATH']}"
d = Daemon(f"{folder}/broken", config(), env=env)
until("nobody is to wait for a broker", lambda: "again in 4 s" in d.stderr())
check("an engine fails", 502, answer("a")[0])
until("and says why", lambda: "there is no room for memory of one's own (MEDUSA_BACKBONE_REQUIRED)" in d.engine_log("a"))
check("another model is served", [], answers(["big"]))
check("the end", 0, d.stop())
finish()
