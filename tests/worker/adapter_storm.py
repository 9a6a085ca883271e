# SPDX-License-Identifier: Apache-2.0
"""Adapters while engines die, lose them, are swapped, unloaded and reloaded, all by chance: adapter_storm.py FOLDER [SEED] [SECONDS].

Whatever happens: an answer is of the adapter that was asked for, in a version that the configuration had meanwhile; the engine is never
asked for more than it has places for; at the end all are served, and the counters add up.
"""
import os
import random
import signal
import sys
import threading
import time

from adapter_world import World, ask, states
from daemon import ENGINE, PATIENCE, check, finish, until

folder, seed = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "1"
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 12
NAMES = "abcd"
other = f"  large: {{cmd: \"{ENGINE} --name large --device-mb 4\", medusa: {{memory: 250MB}}}}\n"
w = World(folder, NAMES, slots=2, engine="--device-mb 4", own="memory: 100MB", others=other)
d = w.start()
versions = {name: {f"text of {name}"} for name in NAMES}
ends, lock, wrong, outcomes = threading.Event(), threading.Lock(), [], {}


def client(number):
    dice = random.Random(f"{seed} client {number}")
    while not ends.is_set():
        model = dice.choice([*NAMES, "base", "large"])
        try:
            if dice.random() < 0.1: # leaves at once
                connection = d.connect()
                connection.request("POST", "/v1/chat/completions", f'{{"model": "{model}", "wait": 0.05}}', {"Content-Type": "application/json"})
                connection.close()
                continue
            r = d.chat(model, wait=dice.choice((0, 0, 0.02, 0.1)), die=dice.random() < 0.01)
        except OSError as error:
            r = None
            with lock:
                wrong.append(f"{model}: {error}")
        with lock:
            if r:
                outcomes[r.status] = outcomes.get(r.status, 0) + 1
            if r and r.status == 200 and (r.json.get("name") != ("large" if model == "large" else "base")
                                          or (model in versions and r.json.get("adapter") not in versions[model]) or (model not in versions and r.json.get("adapter"))):
                wrong.append(f"{model}: {r.json}")
            if r and r.status not in (200, 404, 429, 502, 503):
                wrong.append(f"{model}: {r.status} {r.body[:300]}")


def fault(dice, number):
    kind = dice.choice(("kill", "forget", "forget", "unload", "unload", "unload base", "path", "remove", "break", "load"))
    name = dice.choice(NAMES)
    if kind == "kill":
        pid = w.last_engine(d)
        if pid:
            os.kill(pid, signal.SIGKILL)
    elif kind == "forget":
        d.ask("POST", "/upstream/base/forget", {"names": dice.sample(NAMES, 2)})
    elif kind in ("unload", "load"):
        d.ctl(kind, name)
    elif kind == "unload base":
        d.ctl("unload", "base")
    elif kind == "path":
        text = f"{name} of path {number}"
        with lock:
            versions[name].add(text)
        w.files[name] = f"{w.folder}/{name}.{number}.json"
        w.write(name, text=text)
        check(f"reload {number}", 0, w.rewrite(d).returncode)
    elif kind == "remove":
        w.names = [n for n in NAMES if n != name]
        check(f"without {name}", 0, w.rewrite(d).returncode)
        time.sleep(dice.uniform(0, 0.3))
        w.names = list(NAMES)
        check(f"with {name}", 0, w.rewrite(d).returncode)
    else:
        w.write(name, status=500)
        time.sleep(dice.uniform(0, 0.5))
        w.write(name, text=f"text of {name}")


threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
for thread in threads:
    thread.start()
dice, end, number = random.Random(f"{seed} faults"), time.monotonic() + seconds, 0
while time.monotonic() < end:
    number += 1
    fault(dice, number)
    time.sleep(dice.uniform(0.05, 0.6))
ends.set()
for thread in threads:
    thread.join(2 * PATIENCE)
check("no client waits for ever", [], [t for t in threads if t.is_alive()])
check("answers", [], wrong[:5])
check("some were served", True, outcomes.get(200, 0) > 20)
for name in NAMES:
    got = until(f"{name} is served in the end", lambda: (r := ask(d, name))[0] == 200 and r)
    check(f"{name}: by itself", True, bool(got) and got[2] in versions[name])
until("nothing is open", lambda: "\nmedusa_worker_requests{" in (m := d.get("/metrics").body.decode()) and
      all(line.endswith(" 0") for line in m.splitlines() if line.startswith("medusa_worker_requests{")))
sums = {}
for line in d.get("/metrics").body.decode().splitlines():
    key, _, value = line.partition('{model="')
    if value and key.startswith("medusa_worker_requests_") and key.endswith("_total"):
        model, count = value.split('"} ')
        sums.setdefault(model, {})[key] = int(count)
check("counters add up", [], [m for m, parts in sums.items() if 2 * parts["medusa_worker_requests_total"] != sum(parts.values())])
check("the engine was never asked for more than it has places for", [], [line for line in open(f"{w.folder}/err", encoding="utf-8") if "no place is left" in line])
check("the scheduler refused nothing", [], [line for line in open(f"{w.folder}/err", encoding="utf-8") if "the scheduler refused" in line or "runs already" in line])
print(f"  {outcomes}, {number} faults")
check("its end", 0, d.stop())
finish()
