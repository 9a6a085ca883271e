# SPDX-License-Identifier: Apache-2.0
"""Three adapters on one llama-engine behind medusa-worker: adapter_reference.py FOLDER. Tokens are those of the engine offline."""
import os
import signal
import sys
import threading

from adapters import make_all, offline_with, write_shape
from daemon import Daemon, check, finish, free_ports, process_words, processes, until
from daemon import ENGINE as OTHER
from reference import ENGINE, prompt_of

folder = sys.argv[1]
SHAPE = write_shape(folder)
MODEL = ["--recipe", SHAPE, "--seed", "7", "--max-context", "256"]
NAMES, COUNT, TOKENS = ("one", "eight", "some"), 4, 24
PROMPTS = [prompt_of(i, 7, 300) for i in range(COUNT)]
paths = {name: path for name, path in make_all(SHAPE, folder).items() if name in NAMES}
want = {name: offline_with(folder, MODEL, COUNT, TOKENS, paths.get(name)) for name in (*NAMES, "base")}
check("adapters change the tokens", 4, len({str(tokens) for tokens in want.values()}))

port = free_ports(4)
engine = f"{ENGINE} {' '.join(MODEL)} --batches 1,2,4,8 --served-name base --serve 127.0.0.1:${{PORT}} --lora-slots 2 --max-lora-rank 64"
adapters = "".join(f"        {name}: {paths[name]}\n" for name in NAMES)
d = Daemon(f"{folder}/worker", f"""
startPort: {port}
medusa: {{gpus: [{{memory: 400MB}}], policies: {{preloading: none}}}}
models:
  base:
    cmd: "{engine}"
    medusa:
      memory: 300MB
      swap: on
      adapter_slots: 2
      adapters:
{adapters}        nowhere: {{path: {folder}/nowhere, bytes: 1MB}}
  large: {{cmd: "{OTHER} --name large --device-mb 4", medusa: {{memory: 300MB}}}}
""")


def all_at_once():
    """What each prompt gives with each model: those that differ from the engine offline."""
    asked = [(name, i) for name in want for i in range(COUNT)]
    wrong, lock = [], threading.Lock()

    def one(name, i):
        r = d.ask("POST", "/v1/completions", {"model": name, "prompt": PROMPTS[i], "max_tokens": TOKENS, "return_token_ids": True})
        got = r.json["choices"][0].get("token_ids") if r.status == 200 else r.json
        if got != want[name][i]:
            with lock:
                wrong.append((name, i, r.status, got))

    threads = [threading.Thread(target=one, args=each) for each in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def loads():
    return {m["model"]: m["loads"] for m in d.tell("models")["models"]}


def engine_pid():
    """llama-engine itself, below medusa-swap run."""
    for pid in processes():
        words = process_words(pid)
        if words[0] == ENGINE and f"127.0.0.1:{port}" in words:
            return pid
    return 0


check("the base and three adapters, in two places", [], all_at_once())
check("the engine was loaded once", 1, loads()["base"])
check("all adapters were loaded", True, all(loads()[name] for name in NAMES))
check("its list has two", 3, len(d.get("/upstream/base/v1/models").json["data"]))
r = d.ask("POST", "/v1/completions", {"model": "nowhere", "prompt": "x"})
check("an adapter that is not there", (502, True), (r.status, "did not load the adapter: 404" in r.json["error"]["message"]))
check("the others do not mind", [], all_at_once())

before, pid = loads(), engine_pid()
there = sorted(name for name, state in d.running().items() if name in NAMES and state == "ready")
check("another model takes the memory", 200, d.chat("large").status)
check("the engine is out", "swapped", d.running().get("base"))
r = d.ask("POST", "/v1/completions", {"model": there[0], "prompt": PROMPTS[0], "max_tokens": TOKENS, "return_token_ids": True})
check("an adapter comes back with its engine", want[there[0]][0], r.json["choices"][0]["token_ids"] if r.status == 200 else r.json)
check("without a load", (before[there[0]], pid), (loads()[there[0]], engine_pid()))
check("all of them answer as before", [], all_at_once())

os.kill(engine_pid(), signal.SIGKILL)
until("its end was seen", lambda: "base" not in d.running())
check("another engine has the adapters again", [], all_at_once())
check("another one it is", True, engine_pid() not in (0, pid))
check("its end", 0, d.stop())
finish()
