# SPDX-License-Identifier: Apache-2.0
"""Adapters on graphs from FOLDER/lora.medusa, and under medusa-swap: serve_adapters_restored.py FOLDER OPTION...

The options are those of the engine that was captured, which knew no adapter.
"""
import subprocess
import sys
import threading

from adapters import load, make, offline_with, unload
from daemon import check, finish, until
from reference import Engine, prompt_of

folder, OPTIONS = sys.argv[1], sys.argv[2:]
MODEL = ["--recipe", "models/recipes/tiny.yaml", "--max-kv-bytes", "1000000"]
PROMPTS = [prompt_of(i, 1, 256) for i in range(2)]
paths = {name: make(MODEL[1], f"{folder}/adapter.{name}", rank, rank) for name, rank in (("one", 1), ("eight", 8), ("full", 64))}
want = {name: offline_with(folder, MODEL, 2, 30, path) for name, path in [*paths.items(), ("tiny", None)]}
check("adapters change the tokens", 4, len({str(tokens) for tokens in want.values()}))


def swap(*words):
    done = subprocess.run(["medusa-swap", *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


def together(engine):
    """Both prompts with each adapter and without one, all at once."""
    got = {}

    def one(name, i):
        got[name, i] = engine.tokens(PROMPTS[i], 30, model=name)

    threads = [threading.Thread(target=one, args=(name, i)) for name in want for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: [got[name, i] for i in range(2)] for name in want}


e = Engine(f"{folder}/restored", *OPTIONS, before=["medusa-restore", f"{folder}/lora.medusa", "--"])
check("no graph was made anew", True, "4 restored, 0 live" in e.stderr())
check("the base, before there are adapters", want["tiny"], e.at_once(PROMPTS, 30))
for name, path in paths.items():
    check(f"{name} is loaded", 200, load(e, name, path)[0])
check("a mixed batch on restored graphs", want, together(e))
m = e.metrics()
check("three adapters in two slots", True, m["medusa_engine_lora_slot_copies_total"] >= 3)
check("graphs are used", m["medusa_engine_decode_steps_total"], m["medusa_engine_graph_launches_total"])
check("the exit code", 0, e.stop())

e = Engine(f"{folder}/swapped", *OPTIONS, *[word for name, path in paths.items() for word in ("--lora", f"{name}={path}")],
           before=["medusa-swap", "run", "--name", "adapted", "--artifact", f"{folder}/lora.medusa", "--"])
check("under medusa-swap", want, together(e))
for turn in range(3):
    check(f"out ({turn})", 0, swap("out", "adapted")[0])
    check(f"adapters are listed while it is out ({turn})", 4, len(e.get("/v1/models").json["data"]))
    check(f"in ({turn})", 0, swap("in", "adapted")[0])
    copies = e.metrics()["medusa_engine_lora_slot_copies_total"]
    check(f"what lies in a slot is still there ({turn})", want["full" if turn % 2 else "one"],
          [e.tokens(prompt, 30, model="full" if turn % 2 else "one") for prompt in PROMPTS])
    check(f"it was copied at most once ({turn})", True, e.metrics()["medusa_engine_lora_slot_copies_total"] <= copies + 1)
    copies = e.metrics()["medusa_engine_lora_slot_copies_total"]
    check(f"out and in ({turn})", (0, 0), (swap("out", "adapted")[0], swap("in", "adapted")[0]))
    check(f"the same from the same slot ({turn})", want["full" if turn % 2 else "one"],
          [e.tokens(prompt, 30, model="full" if turn % 2 else "one") for prompt in PROMPTS])
    check(f"without a copy ({turn})", copies, e.metrics()["medusa_engine_lora_slot_copies_total"])
    check(f"a mixed batch ({turn})", want, together(e))

check("out with requests to come", 0, swap("out", "adapted")[0])
check("loaded while it is out", 200, load(e, "late", paths["eight"])[0])
check("unloaded while it is out", 200, unload(e, "eight")[0])
got = []
waits = threading.Thread(target=lambda: got.append(e.tokens(PROMPTS[0], 30, model="late")))
before = e.metrics()["vllm:prompt_tokens_total"]
waits.start()
until("the request has come", lambda: e.metrics()["vllm:prompt_tokens_total"] > before)
check("in for it", 0, swap("in", "adapted")[0])
waits.join()
check("it gets its tokens", [want["eight"][0]], got)
check("out for the end", 0, swap("out", "adapted")[0])
check("the exit code, out", lambda c: c in (0, -15, 143), e.stop())
finish()
