# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` of vllm_hurt.py: adapters come and go, clients hang up, the engine core is killed; the answers go to a file as JSON.

    python3 tests/gpu/vllm_hurt_server.py --cache FOLDER --out FILE.json [-- medusa-restore ARTIFACT --]

Behind -- stands what comes before the server's command.
"""
import argparse
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import vllm_engine
import vllm_hurt_engine as hurt

SETTINGS = {**hurt.SETTINGS, "enable_prefix_caching": False, "enable_lora": True, "max_loras": 2, "max_lora_rank": vllm_engine.RANK,
            "kv_cache_memory_bytes": 512 << 20, "served_model_name": "m", "host": "127.0.0.1"}
ENVIRONMENT = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_LOGGING_COLOR": "0"}
STREAMS, STREAMED, HANG_UPS = 6, 200, 3
TAKEN_OVER = re.compile(r"medusa: (the compiled model has taken over|batches with prefills stay|the take-over)")


def flags():
    words = []
    for name, value in SETTINGS.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{flag}")
        else:
            words += ["--" + flag, value if isinstance(value, str) else json.dumps(value)]
    return words


def command(cache):
    return [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", hurt.folder_of(cache, "dense"), *flags()]


def descendants(pid):
    """Process ids below a process."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
    found, todo = [], [pid]
    while todo:
        todo += parents.get(todo[0], [])
        found.append(todo.pop(0))
    return found[1:]


def alive(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Server:
    def __init__(self, cache, log, before=(), **environment):
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            self.port = listening.getsockname()[1]
        began = time.monotonic()
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen([*before, *command(cache), "--port", str(self.port)], stdout=file, stderr=file,
                                            env={**os.environ, **ENVIRONMENT, **environment})
        self._log, self.below = log, []
        while True:
            hurt.require(self.process.poll() is None, f"vllm serve ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2).close()
                break
            except OSError:
                time.sleep(0.05)
        self.seconds = round(time.monotonic() - began, 2)

    def said(self):
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=120)

    def ask(self, model, number, tokens=16, **more):
        """The tokens of one answer; number: of the prompt."""
        choose = random.Random(number)
        body = {"model": model, "prompt": hurt.prompt(choose, 30 + 20 * number)["prompt_token_ids"], "max_tokens": tokens, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True, **more}
        with self.post("/v1/completions", body) as answer:
            return list(json.load(answer)["choices"][0]["token_ids"])

    def answers(self, model):
        return [self.ask(model, number) for number in range(4)]

    def load(self, name, folder):
        self.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder}).close()

    def unload(self, name):
        self.post("/v1/unload_lora_adapter", {"lora_name": name}).close()
        try:
            self.ask(name, 0)
        except urllib.error.HTTPError as error:
            hurt.require(error.code == 404, f"an adapter that is unloaded gives {error}")
            return
        raise hurt.Problem(f"{name} answers although it is unloaded")

    def stream(self, number, hang_up):
        """Parts of an answer that came; a client that hangs up takes only some."""
        body = {"model": "m", "prompt": hurt.prompt(random.Random(number), 40)["prompt_token_ids"], "max_tokens": STREAMED, "temperature": 0,
                "ignore_eos": True, "stream": True, "return_token_ids": True}
        count = 0
        with self.post("/v1/completions", body) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    count += len(json.loads(line[6:])["choices"][0].get("token_ids") or [0])
                if hang_up and count >= 5:
                    break
        return count

    def wait_for_takeover(self):
        end = time.monotonic() + hurt.TAKEOVER_S
        while not TAKEN_OVER.search(self.said()):
            hurt.require(time.monotonic() < end, f"the compiled model has not taken over in {hurt.TAKEOVER_S:.0f} s")
            time.sleep(0.1)

    def kill_core(self):
        """Returns how the server ended after that."""
        self.below = descendants(self.process.pid)
        for pid in self.below:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"EngineCore" in file.read():
                    os.kill(pid, signal.SIGKILL)
                    return self.process.wait(60)
        raise hurt.Problem("the server has no process of an engine core")

    def close(self):
        """Returns the processes below the server that outlive it."""
        if self.process.poll() is None:
            self.below = descendants(self.process.pid)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        end = time.monotonic() + 10
        while any(map(alive, self.below)) and time.monotonic() < end:
            time.sleep(0.1)
        return list(filter(alive, self.below))


def streams(server):
    """Runs streams beside what the caller does; their counts are there when it is done."""
    counts = [0] * STREAMS

    def run(at):
        counts[at] = server.stream(100 + at, at < HANG_UPS)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(STREAMS)]
    for thread in threads:
        thread.start()
    return threads, counts


def use(server, folders, settled):
    """Adapters are loaded, used and unloaded while others stream; all tokens by name. settled: nothing else changes meanwhile."""
    found = {"base": server.answers("m")}
    server.load("a1", folders[0])
    found["a1"] = server.answers("a1")
    threads, counts = streams(server)
    server.load("a2", folders[1])
    found["a2"] = server.answers("a2")
    server.unload("a1")
    server.load("a3", folders[2])
    found["a3"] = server.answers("a3")
    for thread in threads:
        thread.join(120)
    hurt.require(counts[HANG_UPS:] == [STREAMED] * (STREAMS - HANG_UPS), f"streams had {counts[HANG_UPS:]} tokens instead of {STREAMED}")
    server.unload("a2")
    server.unload("a3")
    found["base again"] = server.answers("m")
    hurt.require(not settled or found["base again"] == found["base"], "after all adapters are gone, the model answers otherwise than before")
    return found


def main():
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--out", required=True)
    options, before = parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1:]
    vllm_engine.environment(argparse.Namespace(cache=options.cache, in_process=False, runner=None))
    folders = [os.path.join(options.cache, "adapters", f"hurt-dense-{number}") for number in (1, 2, 3)]
    report = {}
    server = Server(options.cache, options.out + ".first", before)
    try:
        report["seconds"] = server.seconds
        report["early"] = use(server, folders, not before)
        if before:
            server.wait_for_takeover()
        report["answers"] = use(server, folders, True)
        report["killed"] = server.kill_core() if before else None
    finally:
        report["left"] = server.close()
        print(server.said(), flush=True)
    if before:
        # Prefills of the compiled model from the first one on: only then are these the live engine's answers.
        server = Server(options.cache, options.out + ".again", before, MEDUSA_VLLM_PREFILL="compiled", MEDUSA_VLLM_TAKEOVER="0")
        try:
            report["again"] = server.answers("m")
        finally:
            server.close()
            print(server.said(), flush=True)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(report, file)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except hurt.Problem as problem:
        print(f"failure: {problem}", flush=True)
        sys.exit(1)
