# SPDX-License-Identifier: Apache-2.0
"""Engines that share their weights behind medusa-worker, which has the broker: shared_weights.py FOLDER. Tokens are those of the engine offline."""
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading

from adapters import write_shape
from daemon import Daemon, check, finish, free_ports, lives, process_stat, process_words, processes, until
from reference import ENGINE, offline, prompt_of

folder = sys.argv[1]
SHAPE = write_shape(folder)
MODEL = ["--recipe", SHAPE, "--seed", "7", "--max-context", "256"]
COUNT, TOKENS = 4, 24
PROMPTS = [prompt_of(i, 7, 300) for i in range(COUNT)]
want = offline(folder, MODEL, COUNT, TOKENS, "--batches", "1,2,4")
FILLED = "shared as q, and filled by another process"
ALONE = "the weights are not shared"
port = free_ports(8)
env = {"HOSTCUDA_SHARED": f"{folder}/ledger"}
engine = f"{ENGINE} {' '.join(MODEL)} --batches 1,2,4,8 --serve 127.0.0.1:${{PORT}} --share q --served-name"


def config(**share):
    models = {"a": "on", "b": "on", "c": "on", "alone": "off", **share}
    text = "".join(f"  {name}:\n    cmd: \"{engine} {name}\"\n    medusa: {{memory: 20MB, share: {how}}}\n" for name, how in models.items())
    return f"startPort: {port}\nmedusa: {{gpus: [{{memory: 400MB}}], policies: {{preloading: none}}, adopt_time: 60s}}\nmodels:\n{text}"


def tokens(model):
    """Those that differ from the engine offline."""
    wrong = []

    def one(i):
        r = d.ask("POST", "/v1/completions", {"model": model, "prompt": PROMPTS[i], "max_tokens": TOKENS, "return_token_ids": True})
        got = r.json["choices"][0].get("token_ids") if r.status == 200 else (r.status, r.json)
        if got != want[i]:
            wrong.append((i, got))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def socket_of(daemon):
    return f"{daemon.control}.engines/backbone.sock"


def held():
    """(state, readers) of each backbone."""
    said = subprocess.run(["medusa-backbone", "status", "--json", "--socket", socket_of(d)], capture_output=True, text=True, timeout=60)
    return [(one["state"], one["readers"]) for one in map(json.loads, said.stdout.splitlines())] if not said.returncode else said.stderr


def processes_with(word):
    """Of this user, with that word in their command: process IDs."""
    return [pid for pid in processes() if word(process_words(pid)) and lives(pid)]


def brokers():
    """Those of this daemon, which has started them."""
    found = processes_with(lambda words: words[0].endswith("/medusa-backbone") and "--listen-fd" in words)
    return [pid for pid in found if (process_stat(pid) or ("", ["", 0]))[1][1] == str(d.process.pid)]


def engine_of(model):
    found = processes_with(lambda words: words[0] == ENGINE and "--share" in words and words[-2] == model and SHAPE in words)
    if not found:
        raise RuntimeError(f"no engine of {model} runs:\n{d.stderr()[-2000:]}")
    return found[0]


def metric(name):
    return [line.split()[1] for line in d.get("/metrics").body.decode().splitlines() if line.startswith(f"medusa_worker_{name} ")]


def several_readers(count):
    until(f"{count} engines have it", lambda: held() == [("read", count)])


d = Daemon(f"{folder}/worker", config(), env=env)
until("a broker from the beginning", lambda: len(brokers()) == 1)
check("who may connect", 0o600, stat.S_IMODE(os.stat(socket_of(d)).st_mode))
check("the first engine", [], tokens("a"))
check("it fills", [("read", 1)], held())
check("the second engine", [], tokens("b"))
check("it finds what the first has filled", (0, 1), (d.engine_log("a").count(FILLED), d.engine_log("b").count(FILLED)))
check("both have it", [("read", 2)], held())
check("an engine with share: off", [], tokens("alone"))
check("has weights of its own", (1, [("read", 2)]), (d.engine_log("alone").count(ALONE), held()))

# ---- the broker is killed, and an engine begins before there is another one ----
os.kill(brokers()[0], signal.SIGKILL)
check("it waits for the next broker", ([], 1), (tokens("c"), d.engine_log("c").count(FILLED)))
several_readers(3)

# ---- the broker is killed, while engines serve ----
for turn in range(2):
    old = brokers()[0]
    running = threading.Thread(target=lambda: check("requests do not mind", [], tokens("a") + tokens("b")))
    running.start()
    os.kill(old, signal.SIGKILL)
    running.join()
    until("another broker follows", lambda old=old: [pid for pid in brokers() if pid != old])
    several_readers(3)
check("it is counted", ["4"], metric("backbone_starts_total"))
check("it is said", 3, d.stderr().count("medusa-backbone was killed by SIGKILL"))
os.kill(engine_of("c"), signal.SIGKILL)
until("its end was seen", lambda: "c" not in d.running())
check("an engine that begins later has the same memory", ([], 2, [("read", 3)]), (tokens("c"), d.engine_log("c").count(FILLED), held()))

# ---- who has filled it is killed ----
os.kill(engine_of("a"), signal.SIGKILL)
until("its end was seen", lambda: "a" not in d.running())
check("the others go on", [], tokens("b") + tokens("c"))
check("the next one finds it filled", ([], 1, [("read", 3)]), (tokens("a"), d.engine_log("a").count(FILLED), held()))

# ---- reload ----
before, engines = brokers(), [engine_of(name) for name in "abc"]
d.write_config(config(c="off"))
check("a reload", 0, d.ctl("reload").returncode)
check("the broker and those that stay are the same", (before, engines[:2]), (brokers(), [engine_of(name) for name in "ab"]))
check("whose model shares no more gets another engine", ([], 1), (tokens("c"), d.engine_log("c").count(ALONE)))
several_readers(2)
d.write_config(config())
check("a reload back", 0, d.ctl("reload").returncode)
check("it shares again", ([], 3, [("read", 3)]), (tokens("c"), d.engine_log("c").count(FILLED), held()))

# ---- the daemon is killed ----
before, engines = brokers(), [engine_of(name) for name in "abc"]
d.stop(signal.SIGKILL)
until("its broker ends with it", lambda: not lives(before[0]))
d = Daemon(f"{folder}/worker", config(), env=env)
until("another broker", lambda: len(set(brokers()) - set(before)) == 1)
several_readers(3)
check("engines were adopted", engines, [engine_of(name) for name in "abc"])
check("they serve", [], tokens("a") + tokens("b") + tokens("c"))
os.kill(engine_of("b"), signal.SIGKILL)
until("its end was seen", lambda: "b" not in d.running())
check("a new engine has the old memory", ([], 2), (tokens("b"), d.engine_log("b").count(FILLED)))

# ---- the end ----
last = brokers()
check("the end", 0, d.stop())
check("of all", ([False], False), ([lives(pid) for pid in last], os.path.exists(socket_of(d))))
check("no engine is left", [], processes_with(lambda words: words[0] == ENGINE and SHAPE in words))

# ---- the first model that shares comes with a reload ----
d = Daemon(f"{folder}/later", config(a="off", b="off", c="off"), env=env)
check("nobody wants a broker", ([], ["0"], False), (brokers(), metric("backbone_starts_total"), os.path.exists(socket_of(d))))
d.write_config(config())
check("now they do", 0, d.ctl("reload").returncode)
until("a broker", lambda: len(brokers()) == 1)
check("two engines", ([], 1), (tokens("a") + tokens("b"), d.engine_log("b").count(FILLED)))
check("the end", 0, d.stop())

# ---- a broker that cannot run ----
beside = f"{folder}/beside"
os.makedirs(beside)
for name in os.listdir(f"{os.environ['MEDUSA_BUILD']}/bin"):
    shutil.copy(f"{os.environ['MEDUSA_BUILD']}/bin/{name}", f"{beside}/{name}")
with open(f"{beside}/medusa-backbone", "w", encoding="utf-8") as file:
    file.write("#!/bin/sh\necho no device here\nexit 7\n")
path = os.environ["PATH"]
os.environ["PATH"] = f"{beside}:{path}"
d = Daemon(f"{folder}/broken", config(), env=env)
os.environ["PATH"] = path
until("it is tried again, later each time", lambda: "ended with exit code 7; it is started again in 2 s" in d.stderr())
until("nobody is to wait for it", lambda: not os.path.exists(socket_of(d)) or "again in 4 s" in d.stderr())
check("engines have weights of their own", [], tokens("a") + tokens("b"))
check("and say so", (1, 1), (d.engine_log("a").count(ALONE), d.engine_log("b").count(ALONE)))
with open(f"{folder}/broken/state/backbone~.log", encoding="utf-8") as file:
    check("what it has said", True, "no device here" in file.read())
check("the end", 0, d.stop())
with open(f"{folder}/refused.yaml", "w", encoding="utf-8") as file:
    file.write("models: {a: {cmd: x, proxy: 'http://127.0.0.1:1', medusa: {share: on, swap: on}}}")
refused = subprocess.run(["medusa-worker", "--check", "--config", f"{folder}/refused.yaml"], capture_output=True, text=True)
check("sharing and swapping", (3, True), (refused.returncode, "share: on wants swap: off" in refused.stderr))
finish()
