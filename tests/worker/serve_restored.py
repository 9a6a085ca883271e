# SPDX-License-Identifier: Apache-2.0
"""The same server with graphs from FOLDER/serve.medusa, then under medusa-swap: serve_restored.py FOLDER [OPTION...].

The options are those of the engine that was captured.
"""
import os
import subprocess
import sys
import threading

from daemon import Daemon, check, finish, free_ports, until
from reference import ENGINE, Engine, prompt_of

folder = sys.argv[1]
OPTIONS = sys.argv[2:] or ["--recipe", "models/recipes/tiny.yaml", "--max-kv-bytes", "1000000"]
PROMPTS = [prompt_of(i, 1, 256) for i in range(6)]


def swap(*words):
    done = subprocess.run(["medusa-swap", *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


live = Engine(f"{folder}/live", *OPTIONS, env={"LD_LIBRARY_PATH": f"{os.environ['MEDUSA_BUILD']}/lib/hostcuda"})
want = live.at_once(PROMPTS, 30)
check("live: the exit code", 0, live.stop())

restored = Engine(f"{folder}/restored", *OPTIONS, before=["medusa-restore", f"{folder}/serve.medusa", "--"])
check("restored: the same tokens", want, restored.at_once(PROMPTS, 30))
check("no graph was made anew", True, "4 restored, 0 live" in restored.stderr())
check("restored: the exit code", 0, restored.stop())

swapped = Engine(f"{folder}/swapped", *OPTIONS, before=["medusa-swap", "run", "--name", "served", "--artifact", f"{folder}/serve.medusa", "--"])
check("under medusa-swap: the same tokens", want, swapped.at_once(PROMPTS, 30))
check("out", 0, swap("out", "served")[0])
check("its weights, too", lambda s: "served: out" in s and " 0.0 MB stay" in s, swap("status", "served")[1])
check("health while it is out", 200, swapped.get("/health").status)
got = []
waits = threading.Thread(target=lambda: got.append(swapped.at_once(PROMPTS, 30)))
waits.start()
until("requests have come", lambda: swapped.metrics()["vllm:prompt_tokens_total"] >= 2 * sum(map(len, PROMPTS)))
check("none is answered while it is out", [], got)
check("in", 0, swap("in", "served")[0])
waits.join()
check("they have waited, and get the same tokens", [want], got)
for turn in range(3):
    check(f"out again ({turn})", 0, swap("out", "served")[0])
    check(f"in again ({turn})", 0, swap("in", "served")[0])
    check(f"the KV cache holds what it held ({turn})", want, swapped.at_once(PROMPTS, 30))
check("out for the end", 0, swap("out", "served")[0])
check("the exit code, out", lambda c: c in (0, -15, 143), swapped.stop())

# Behind medusa-worker, which restores what `artifact` names: for an engine that is stopped, and for one that is swapped.
COMMAND = f"{ENGINE} {' '.join(OPTIONS)} --serve 127.0.0.1:${{PORT}} --served-name ${{MODEL_ID}}"
d = Daemon(f"{folder}/behind", f"""
startPort: {free_ports(4)}
medusa: {{gpus: [{{memory: 10GB}}]}}
models:
  stopped: {{cmd: "{COMMAND}", medusa: {{artifact: {folder}/serve.medusa, memory: 6GB, swap: off}}}}
  swapped: {{cmd: "{COMMAND}", medusa: {{artifact: {folder}/serve.medusa, memory: 6GB, swap: on}}}}
""")
for turn in range(2):
    for model in ("stopped", "swapped"):
        r = d.ask("POST", "/v1/completions", {"model": model, "prompt": PROMPTS[0], "max_tokens": 30, "return_token_ids": True})
        check(f"{model}, {turn}: the same tokens", (200, want[0]), (r.status, r.status == 200 and r.json["choices"][0]["token_ids"]))
for model in ("stopped", "swapped"):
    check(f"{model}: no graph was made anew", True, "4 restored, 0 live" in d.engine_log(model))
check("the exit code", 0, d.stop())
finish()
