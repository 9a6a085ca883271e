# SPDX-License-Identifier: Apache-2.0
"""vLLM's sleep mode, by its own allocator or by medusa-swap: times, bytes that stay, and answers before and after.

    [medusa-swap run --name NAME --] python3 tests/gpu/vllm_sleep.py [--rounds N] --in-process --cache FOLDER --out FILE.json
    medusa-swap run --name NAME -- python3 tests/gpu/vllm_sleep.py --engine NAME [--rounds N] --serve --cache FOLDER --out FILE.json

The first form puts LLM() to sleep at levels 1 and 2, N times each, by whichever backend vLLM has. The second one takes the memory of
`vllm serve` away by the command, with requests in flight, and then puts the server to sleep over HTTP. Other arguments are those
of vllm_engine.py. The last line of the output is the report without the tokens; exit code 1: something is not as it must be.
"""
import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import vllm_engine
from swap_bench import check, failures, status, swap, used

LONG, PROMPT = 768, 512  # tokens of an answer that is being made, and of a prompt
ENGINE = "vllm"


def ms(call):
    value, seconds = vllm_engine.timed(call)
    return value, round(seconds * 1e3, 1)


def prompt(number, size=PROMPT):
    return [1000 + (number * 7919 + at * 31) % 20000 for at in range(size)], 0


# ---- LLM() ----

KEPT = {}  # weights on the host, while level 2 has discarded them


def keep_weights(worker):
    import torch

    with torch.inference_mode():
        for name, weight in worker.model_runner.model.named_parameters():
            KEPT[name] = weight.cpu().clone()


def load_weights(worker):
    """What a user of level 2 does with a checkpoint."""
    import torch

    with torch.inference_mode():
        for name, weight in worker.model_runner.model.named_parameters():
            weight.copy_(KEPT[name])
        torch.cuda.synchronize()


def backend_of(worker):
    return type(worker._get_sleep_mode_backend()).__module__


def wake(llm, level):
    llm.wake_up(tags=["weights"] if level == 2 else None)
    if level == 2:
        llm.collective_rpc(load_weights)
        llm.wake_up(tags=["kv_cache"])


def sleep_once(engine, level, before):
    llm = engine._llm
    if level == 2 and not KEPT:
        llm.collective_rpc(keep_weights)
    found = {"level": level, "used_mib": used()}
    _, found["sleep_ms"] = ms(lambda: llm.sleep(level=level))
    found["stays_mib"] = used()
    _, found["wake_ms"] = ms(lambda: wake(llm, level))
    _, found["first_token_ms"] = ms(lambda: engine.ask([prompt(3)], 1))
    after = engine.ask([prompt(1), prompt(2)], 32)
    check(f"level {level}: {found['sleep_ms']} ms to sleep, {found['stays_mib']} of {found['used_mib']} MiB stay, {found['wake_ms']} ms to wake, "
          f"{found['first_token_ms']} ms to the first token; the answers are as before", after == before)
    return found


def run_llm(options, settings, rounds):
    engine = vllm_engine.Engine(options, vllm_engine.model_folder(options.cache, options.shape), {**settings, "enable_sleep_mode": True})
    engine.ask([prompt(1), prompt(2)], 32)
    engine._llm.reset_prefix_cache()
    before = engine.ask([prompt(1), prompt(2)], 32)
    asleep = [sleep_once(engine, level, before) for level in (1, 2) for _ in range(rounds)]
    return {"backend": engine._llm.collective_rpc(backend_of)[0], "rounds": asleep, "answers": before}


# ---- vllm serve ----


def get(path, method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{vllm_engine.PORT}{path}", method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status, answer.read().decode()


def out_in_flight(server, pool, number, long_answer):
    """Memory goes in the middle of an answer; /health answers meanwhile, and the answer goes on as if nothing had happened."""
    alone = pool.submit(server.ask, [prompt(1)], LONG)
    time.sleep(0.25 + 0.1 * number)
    gone = swap("out", name=ENGINE)
    found = {"out_ms": gone["ns_total"] / 1e6, "copied": gone["copied"], "bytes": gone["bytes"], "stays_mib": used()}
    time.sleep(2)
    found["health"], _ = get("/health")
    check(f"/health answers {found['health']} while the memory is out, and the answer waits", found["health"] == 200 and not alone.done())
    found["in_ms"] = swap("in", name=ENGINE)["ns_total"] / 1e6
    check("the answer that was being made is as before", alone.result(120)[0] == long_answer)
    return found


def asked_while_out(server, pool, number):
    """Milliseconds from "in" to the first token of a request that has waited; others that came meanwhile are answered, too."""
    swap("out", name=ENGINE)
    first = pool.submit(server.ask, [prompt(30 + number)], 1)
    time.sleep(0.5)
    began = time.perf_counter()
    swap("in", name=ENGINE)
    first.result(120)
    milliseconds = (time.perf_counter() - began) * 1e3
    swap("out", name=ENGINE)
    more = [pool.submit(server.ask, [prompt(10 + at)], 8) for at in range(16)]
    time.sleep(0.5)
    waited = not any(one.done() for one in more)
    swap("in", name=ENGINE)
    check("16 requests that came while the memory was out are answered when it is back",
          waited and all(len(one.result(120)[0]) == 8 for one in more))
    return round(milliseconds, 1)


def busy(server, pool, rounds):
    """Many requests at once, and the memory goes and comes several times: none fails."""
    asked = [pool.submit(server.ask, [prompt(50 + at, 64 + 16 * at)], LONG) for at in range(24)]
    for _ in range(rounds):
        time.sleep(0.3)
        swap("out", name=ENGINE)
        swap("in", name=ENGINE)
    check(f"24 requests at once are answered over {rounds} rounds", all(len(one.result(120)[0]) == LONG for one in asked))


def sleep_served(server, level, before):
    found = {"level": level}
    _, found["sleep_ms"] = ms(lambda: get(f"/sleep?level={level}", "POST"))
    found["stays_mib"], found["state"] = used(), status(ENGINE)["state"]
    check(f"the server sleeps, and medusa-swap says that its memory is {found['state']}",
          json.loads(get("/is_sleeping")[1])["is_sleeping"] and found["state"] == "out" and get("/health")[0] == 200)
    _, found["wake_ms"] = ms(lambda: get("/wake_up", "POST"))
    _, found["first_token_ms"] = ms(lambda: server.ask([prompt(3)], 1))
    check(f"/sleep: {found['sleep_ms']} ms, /wake_up: {found['wake_ms']} ms, first token: {found['first_token_ms']} ms; the answer is as before",
          server.ask([prompt(1)], LONG)[0] == before)
    return found


def run_server(options, settings, rounds):
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"  # offers /sleep
    # A prompt that is asked again is computed as the first time.
    more = {"enable_sleep_mode": True, "no_enable_prefix_caching": True}
    server = vllm_engine.Server(options, vllm_engine.model_folder(options.cache, options.shape), {**settings, **more})
    try:
        with ThreadPoolExecutor(64) as pool:
            server.ask([prompt(1)], 8)
            before = server.ask([prompt(1)], LONG)[0]
            flights = [{**out_in_flight(server, pool, number, before), "first_token_ms": asked_while_out(server, pool, number)} for number in range(rounds)]
            busy(server, pool, rounds)
            asleep = [sleep_served(server, 1, before) for _ in range(rounds)]
    finally:
        server.close()
    return {"backend": "medusa-swap, vllm serve", "flights": flights, "rounds": asleep, "answers": [before]}


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine")
    own, sys.argv[1:] = parser.parse_known_args()
    options = vllm_engine.parse()
    vllm_engine.environment(options)
    global ENGINE
    ENGINE = own.engine or ENGINE
    settings = {"load_format": "dummy", "dtype": "bfloat16", "max_model_len": 4096, "max_num_seqs": 256, "gpu_memory_utilization": 0.8,
                "seed": 0, **json.loads(options.extra)}
    report = (run_server if options.serve else run_llm)(options, settings, own.rounds)
    report = {"shape": options.shape, "failed": failures, **report}
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file)
    print(json.dumps({key: value for key, value in report.items() if key != "answers"}), flush=True)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
