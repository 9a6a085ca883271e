# SPDX-License-Identifier: Apache-2.0
"""Swapping in over the links of two GPUs: swap_bench.py --neighbours. The engine sees GPU 0 alone (CUDA_VISIBLE_DEVICES=0)."""
import os
import re
import signal
import subprocess
import threading
import time

from swap_bench import Engine, Table, check, run_parts, status, swap

NAME = "bench"
READY_S = 120  # the carrier locks the pool's pages meanwhile


def gpus():
    """UUID and MiB in use of each GPU."""
    text = subprocess.run(["nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"], capture_output=True,
                          text=True, check=True).stdout
    return [(line.split(",")[0].strip(), int(line.split(",")[1])) for line in text.splitlines() if line.strip()]


def start(options, name, visible, *more):
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    try:
        pool = str(int(options.gb * 1.6e9) + (4 << 30))
        prefix = ["medusa-swap", "run", "--name", name, "--pool-bytes", pool, *more, "--"]
        return Engine(prefix, options.arguments, f"{options.logs}/neighbours-{name}.log")
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]


def await_carrier(name=NAME):
    """Until the carrier has neighbours, and has locked what has memory; the seconds that took."""
    began, last, same = time.perf_counter(), 0, 0
    while time.perf_counter() - began < READY_S:
        now = status(name)
        same = same + 1 if now["neighbours"] and now["neighbours_locked"] == last else 0
        last = now["neighbours_locked"]
        if last and (last >= now["pool_bytes"] - (256 << 20) or same == 10):
            break
        time.sleep(0.5)
    check(f"the carrier of {name} is ready: {now['neighbours']} neighbours, {now['neighbours_locked'] / 1e9:.1f} GB locked", now["neighbours"] > 0)
    return time.perf_counter() - began


def speed(done):
    return {"gb_s": done["copied"] / max(done["ns_copy"], 1), "copied": done["copied"], "by_neighbours": done["copied_by_neighbours"],
            "ms": done["ns_total"] / 1e6, "copy_ms": done["ns_copy"] / 1e6, "lock_ms": done["ns_lock"] / 1e6, "map_ms": done["ns_map"] / 1e6,
            "command_ms": done["command_ms"], "because": done["neighbours_because"], "links": done["links"]}


def come(engine, wanted, what, *options, name=NAME):
    swap("out", name=name)
    done = speed(swap("in", *options, name=name))
    check(f"{what}: the answer is as before", engine.ask("answer 5")["answer"] == wanted)
    return done


def turns(engine, wanted, options, table):
    rows = []
    for turn in range(options.turns):
        rows.append((come(engine, wanted, f"turn {turn}, one link"), come(engine, wanted, f"turn {turn}, two links", "--gpu-neighbours")))
    print("\n  turn  one link  two links  ratio  by the neighbour  in, one link  in, two links")
    for turn, (one, two) in enumerate(rows):
        print(f"  {turn:4}  {one['gb_s']:6.1f}    {two['gb_s']:6.1f} GB/s {two['gb_s'] / one['gb_s']:5.2f}  {two['by_neighbours'] / 1e9:6.2f} of {two['copied'] / 1e9:5.2f} GB"
              f"  {one['ms']:8.1f} ms  {two['ms']:8.1f} ms", flush=True)
    print()
    table["one_link"], table["two_links"] = [row[0] for row in rows], [row[1] for row in rows]
    check("the neighbour has carried something each time", all(two["by_neighbours"] for _, two in rows))
    table["verified"] = come(engine, wanted, "two links, verified", "--gpu-neighbours", "--verify")


def deaths(engine, wanted, table):
    """The carrier is killed in the middle; the answer must be right, and the next in starts another carrier."""
    for ms in (20, 60, 100):
        await_carrier()
        swap("out")
        carriers = subprocess.run(["pgrep", "-f", "medusa-swap carrier-of-run"], capture_output=True, text=True, check=False).stdout.split()
        kill = threading.Timer(ms / 1e3, lambda pids=tuple(carriers): [os.kill(int(pid), signal.SIGKILL) for pid in pids])
        kill.start()
        table[f"killed_after_{ms}_ms"] = speed(swap("in", "--gpu-neighbours"))
        kill.join()
        check(f"killed after {ms} ms: the answer is as before", engine.ask("answer 5")["answer"] == wanted)
        table[f"after_death_{ms}"] = come(engine, wanted, "the time after", "--gpu-neighbours")


def moved(engine, wanted, names, table):
    """Fully out, and in on the other GPU, whose neighbour is the first one then."""
    for to in (1, 0):
        swap("out", "--full")
        table[f"moved_to_{to}"] = speed(swap("in", "--gpu", names[to], "--gpu-neighbours"))
        check(f"on GPU {to}: the answer is as before", engine.ask("answer 5")["answer"] == wanted)
        await_carrier()
        table[f"two_links_on_{to}"] = come(engine, wanted, f"on GPU {to}, two links", "--gpu-neighbours")
        table[f"one_link_on_{to}"] = come(engine, wanted, f"on GPU {to}, one link")


def neighbours(options, table):
    before = gpus()
    names = [name for name, _ in before]
    engine = start(options, NAME, "0", "--gpu-neighbours")
    wanted = engine.ask("answer 5")["answer"]
    table["carrier_ready_s"] = await_carrier()
    table["used_mib"] = [now - then for (_, now), (_, then) in zip(gpus(), before)]
    table["out_first"] = swap("out")
    table["in_first"] = speed(swap("in"))
    turns(engine, wanted, options, table)
    deaths(engine, wanted, table)
    try:
        moved(engine, wanted, names, table)
    finally:
        check("the engine ends with 0", engine.end() == 0)
    time.sleep(2)
    table["left_mib"] = [now - then for (_, now), (_, then) in zip(gpus(), before)]


def both(options, table):
    """An engine on each GPU: both come in at once, each over both links."""
    engines = [(name, start(options, name, visible, "--gpu-neighbours")) for name, visible in (("left", "0"), ("right", "1"))]
    wanted = [engine.ask("answer 5")["answer"] for _, engine in engines]
    for name, _ in engines:
        await_carrier(name)
    for options_of_in in ((), ("--gpu-neighbours",)):
        for name, _ in engines:
            swap("out", name=name)
        said = {}
        threads = [threading.Thread(target=lambda name=name: said.update({name: speed(swap("in", *options_of_in, name=name))})) for name, _ in engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        table["both_at_once" + "".join(options_of_in)] = said
        for (name, engine), answer in zip(engines, wanted):
            check(f"{name}, both at once: the answer is as before", engine.ask("answer 5")["answer"] == answer)
    for name, engine in engines:
        check(f"{name} ends with 0", engine.end() == 0)


def run(options):
    table = Table(options.out)
    table["driver"] = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"], capture_output=True,
                                     text=True, check=True).stdout.splitlines()
    table["topology"] = re.sub(r"\x1b\[\d*m", "", subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=False).stdout).splitlines()
    if len(table["driver"]) < 2:
        print("skipped: one GPU here: --neighbours")
        return 0
    table["gb"] = options.gb
    return run_parts((neighbours, both), options, table)

