# SPDX-License-Identifier: Apache-2.0
"""Swapping in from an engine on another GPU: swap_bench.py --peers. Two engines with the same weights; each sees its GPU alone, but for the lender with --sees-both. Under 90 s."""
import os
import signal
import subprocess
import threading
import time

from swap_bench import Table, check, run_parts, status, swap
from swap_neighbours import await_carrier, gpus, start

COMER, LENDER = "comer", "lender"


def figures(done):
    """Sizes in bytes; speeds in GB/s: of the copying (with hashing what came), and of all of "in"."""
    names = ("copied", "copied_by_peers", "copied_by_neighbours", "peers_differed", "zero", "peers_because", "peers_carried_because",
             "neighbours_because")
    times = {key[3:] + "_ms": done[key] / 1e6 for key in ("ns_copy", "ns_map", "ns_lock", "ns_total")}
    return {"copy_gb_s": done["copied"] / max(done["ns_copy"], 1), "in_gb_s": done["copied"] / max(done["ns_total"], 1),
            "command_ms": done["command_ms"], **times, **{name: done[name] for name in names}, "where": where(done)}


def where(done):
    """Where the time goes, in ms, and numbers of parts and copies (docs/swapping.md)."""
    told = {key[6:]: done[key] for key in done if key.startswith("peers_") and key not in ("peers_differed", "peers_because", "peers_carried_because")}
    return {key[3:] if key.startswith("ns_") else key: round(value / 1e6, 1) if key.startswith("ns_") else value for key, value in told.items()}


def come(engine, wanted, what, *options):
    swap("out", name=COMER)
    done = figures(swap("in", *options, name=COMER))
    print(f"  {what}: {done['copied'] / 1e9:.2f} GB, {done['copied_by_peers'] / 1e9:.2f} of them from the peer, at {done['copy_gb_s']:.1f} GB/s; in: {done['total_ms']:.1f} ms"
          f" {done['peers_because']}{done['peers_carried_because']}", flush=True)
    if done["copied_by_peers"]:
        print("    " + ", ".join(f"{key} {value}" for key, value in done["where"].items()), flush=True)
    check(f"{what}: the answer is as before", engine.ask("answer 5")["answer"] == wanted)
    return done


def open_engines(options):
    return start(options, COMER, "0", "--gpu-peers"), start(options, LENDER, "1,0" if options.sees_both else "1", "--gpu-peers")


def turns(comer, wanted, options, table):
    table["one_link"] = [come(comer, wanted, "one link") for _ in range(2)]
    table["peer"] = [come(comer, wanted, f"turn {turn}, from the peer", "--gpu-peers") for turn in range(options.turns)]
    table["peer_verified"] = come(comer, wanted, "from the peer, verified", "--gpu-peers", "--verify")
    table["peer_and_neighbours"] = come(comer, wanted, "from the peer, and by neighbours", "--gpu-peers", "--gpu-neighbours")
    table["best_gb_s"] = max(row["copy_gb_s"] for row in table["peer"])
    check("the peer gave something each time", all(row["copied_by_peers"] for row in table["peer"]))


def busy_lender(comer, lender, wanted, table):
    """The lender answers meanwhile: what it writes is another part of its memory."""
    right = lender.ask("answer 3")["answer"]
    answers, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            answers.append(lender.ask("answer 3"))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        table["peer_busy"] = [come(comer, wanted, "the peer computes meanwhile", "--gpu-peers") for _ in range(2)]
    finally:
        stop.set()
        thread.join(60)
    check(f"{len(answers)} answers of the lender are as before", answers and {one["answer"] for one in answers} == {right})
    table["lender_answer_ms"] = [one["ms"] for one in answers]


def changed_lender(comer, lender, wanted, table):
    lender.ask("change")
    table["peer_changed"] = come(comer, wanted, "the peer has written its weights", "--gpu-peers")
    check("what differed came from the pool", table["peer_changed"]["peers_differed"] > 0)
    table["peer_changed_again"] = come(comer, wanted, "and it is not asked for them again", "--gpu-peers")


def killed_lender(comer, lender, wanted, table):
    """The last part: the lender dies while it lends."""
    del lender
    swap("out", name=LENDER)
    swap("in", name=LENDER)
    victim = status(LENDER)["engine_pid"]
    kill = threading.Timer(0.015, lambda: os.kill(victim, signal.SIGKILL))
    swap("out", name=COMER)
    kill.start()
    table["peer_killed"] = figures(swap("in", "--gpu-peers", name=COMER))
    kill.join()
    check("the peer was killed: the answer is as before", comer.ask("answer 5")["answer"] == wanted)


def said_times(options):
    """Where the time went: what the library of the engine that came in has logged of it."""
    with open(f"{options.logs}/neighbours-{COMER}.log", encoding="utf-8", errors="replace") as log:
        return [line.split("from other engines, ms: ")[1].strip() for line in log if "from other engines, ms: " in line]


def peers(options, table):
    began = time.perf_counter()
    before = gpus()
    os.environ["MEDUSA_LOG"] = "debug"  # for said_times()
    comer, lender = open_engines(options)
    wanted = comer.ask("answer 5")["answer"]
    check("both engines hold the same", lender.ask("answer 5")["answer"] == wanted)
    table["carrier_ready_s"] = await_carrier(COMER)
    table["used_mib"] = [now - then for (_, now), (_, then) in zip(gpus(), before)]
    for name in (COMER, LENDER):  # what has come in is known
        swap("out", name=name)
        swap("in", name=name)
    turns(comer, wanted, options, table)
    busy_lender(comer, lender, wanted, table)
    changed_lender(comer, lender, wanted, table)
    killed_lender(comer, lender, wanted, table)
    check("the engine ends with 0", comer.end() == 0)
    table["times"] = said_times(options)
    table["seconds"] = time.perf_counter() - began


def run(options):
    table = Table(options.out)
    table["driver"] = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"], capture_output=True,
                                     text=True, check=True).stdout.splitlines()
    if len(table["driver"]) < 2:
        print("skipped: one GPU here: --peers")
        return 0
    table["gb"] = options.gb
    return run_parts((peers,), options, table)
