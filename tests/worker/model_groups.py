# SPDX-License-Identifier: Apache-2.0
"""Models that run together or not, by groups and matrix: model_groups.py FOLDER."""
import os
import sys
import threading

from daemon import ENGINE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
port = free_ports(20)
DEVICES = {"HOSTCUDA_DEVICES": "2", "HOSTCUDA_MEM": "400M", "HOSTCUDA_SHARED": f"{folder}/devices"}


def config(names, rules, own="memory: 10MB", gpus="[{memory: 300MB}]", **more):
    """Memory has room for all of them, if `own` says so: it is the rules that make models leave."""
    return (f"startPort: {port}\nmedusa: {{gpus: {gpus}, policies: {{preloading: none}}}}\n{rules}\nmodels:\n"
            + "".join(f'  {n}: {{cmd: "{ENGINE} --name {n} --device-mb 5", medusa: {{{more.get(n, own)}}}}}\n' for n in names))


def ask(daemon, model):
    r = daemon.chat(model)
    check(f"{model}: status, name, whether its memory is right", (200, model, True), (r.status, r.json.get("name"), r.json.get("memory")))
    return r.json.get("pid")


def of(daemon, model):
    return next(m for m in daemon.tell("models")["models"] if m["model"] == model)


def there(daemon):
    """Models whose engines have their memory."""
    return "".join(sorted(m["model"] for m in daemon.tell("models")["models"] if m["state"] == "ready"))


# Groups: a and b exclude each other; p and q run together and stay; d is in no group.
GROUPS = """groups:
  turns: {members: [a, b]}
  side: {swap: false, exclusive: false, persistent: true, members: [p, q]}"""
d = Daemon(f"{folder}/groups", config("abdpq", GROUPS), env=DEVICES)
check("nothing is said about groups", False, "obey" in d.stderr())
sides = [ask(d, "p"), ask(d, "q")]
for model, expected in (("a", "apq"), ("b", "bpq"), ("d", "dpq"), ("p", "dpq"), ("a", "apq")):
    ask(d, model)
    check(f"who is there after {model}", expected, there(d))
check("the persistent ones are the same engines", sides, [ask(d, "p"), ask(d, "q")])

# Another member waits for what runs; who may stay is served meanwhile.
held = Held(d, "a")
until("a runs", lambda: of(d, "a")["running"] == 1)
other = Held(d, "b").let_go()
until("b waits", lambda: of(d, "b")["waiting"] == 1)
check("p is served meanwhile", sides[0], ask(d, "p"))
check("b still waits", (1, "apq"), (of(d, "b")["waiting"], there(d)))
held.let_go()
check("both are served", [(200, "a"), (200, "b")], [(r.status, r.json.get("name")) for r in held.wait() + other.wait()])
check("a has left", "bpq", there(d))

# A model that is asked for all the time does not keep the other one away for ever.
ask(d, "a")
ends, statuses = threading.Event(), []


def keep_busy(number):
    """Another request is there before the last one ends."""
    while not ends.is_set():
        statuses.append(d.chat("a", max_tokens=300 + 37 * number, stream=True).status)


busy = [threading.Thread(target=keep_busy, args=(i,)) for i in range(3)]
for thread in busy:
    thread.start()
until("a is busy", lambda: of(d, "a")["running"] >= 2)
ask(d, "b")
check("a was busy all the time", True, not ends.is_set() and all(thread.is_alive() for thread in busy))
ends.set()
for thread in busy:
    thread.join()
check("a lost no request", {200}, set(statuses))
check("the last one was a's", "apq", there(d))

# The rules are read anew: none, then others.
def renew(text):
    with open(f"{d.folder}/config.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(f"{d.folder}/config.new", f"{d.folder}/config.yaml")
    return d.tell("reload")


check("no groups", None, renew(config("abdpq", "")).get("error"))
for model in "abd":
    ask(d, model)
check("memory has room for all", "abdpq", there(d))
check("groups again", None, renew(config("abdpq", "groups: {turns: {members: [a, b, p]}, side: {swap: false, members: [q, d]}}")).get("error"))
ask(d, "d")
check("what is there already stays", "abdpq", there(d))
check("unload", 0, d.ctl("unload", "q").returncode)
ask(d, "q")
check("who starts ends other groups", "dq", there(d))
check("the exit code", 0, d.stop())

# On several GPUs, too, of which each has room.
d = Daemon(f"{folder}/gpus", config("ab", "groups: {turns: {members: [a, b]}}", gpus="[{memory: 10MB}, {memory: 10MB}]"), env=DEVICES)
for model in "abab":
    ask(d, model)
    check("one at a time on two GPUs", model, there(d))
check("the exit code", 0, d.stop())

# A matrix, and no memory: those that may run together share the GPU. c costs more than b.
MATRIX = "matrix: {evict_costs: {c: 5}, sets: {first: a & b, second: a & c, third: b & x & c}}"
d = Daemon(f"{folder}/matrix", config("abcdx", MATRIX, own=""), env=DEVICES)
check("nothing is said about the matrix", False, "obey" in d.stderr())
for model, expected in (("a", "a"), ("b", "ab"), ("c", "ac"), ("b", "bc"), ("x", "bcx"), ("d", "d"), ("c", "c"), ("b", "bc"), ("a", "ac")):
    ask(d, model)
    check(f"who is there after {model}", expected, there(d))
check("the exit code", 0, d.stop())

# What is kept is not ended by a group, and the daemon says so at its start.
d = Daemon(f"{folder}/kept", config("ab", "groups: {turns: {members: [a, b]}}", a="memory: 10MB, pin: true"), env=DEVICES)
check("it is said", True, "its group would end it for the model b; it stays all the same" in d.stderr())
for model in "aba":
    ask(d, model)
check("both are there", "ab", there(d))
check("the exit code", 0, d.stop())
finish()
