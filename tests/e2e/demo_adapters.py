# SPDX-License-Identifier: Apache-2.0
"""Part of the demo: two engines whose weights lie once in the device's memory, with three LoRA adapters between them.

demo_adapters.py FOLDER ENGINE GGUF: GGUF may be empty. Exit code 1 if an answer is not what it should be.
"""
import http.client
import json
import os
import subprocess
import sys
import time

folder, engine, gguf = sys.argv[1:4]
model = gguf or "models/recipes/tiny.yaml"
weights = ["--model", gguf, "--max-context", "512"] if gguf else ["--recipe", model, "--seed", "7"]
ADAPTERS = {"alice": 8, "bob": 16, "carol": 4}  # and their ranks
ENGINES = {"first engine": ("alice", "bob"), "second engine": ("bob", "carol")}
PROMPT, TOKENS = "The sea is", 8
os.environ["MEDUSA_BACKBONE"] = f"{folder}/run/backbone.sock"


def make_adapters():
    for seed, (name, rank) in enumerate(ADAPTERS.items(), 1):
        subprocess.run([sys.executable, "tests/llama/make_adapter.py", "--model", model, "--rank", str(rank), "--alpha", str(rank), "--seed", str(seed),
                        "--std", "0.15", "--projections", "q,v,o", "--peft", f"{folder}/adapters/{name}"], check=True)


def start(name, command, word):
    """A process, and what it says behind this word."""
    path = f"{folder}/{name}.log"
    with open(path, "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    for _ in range(1200):
        with open(path, encoding="utf-8") as log:
            said = log.read()
        found = [line.split(word, 1)[1].strip() for line in said.splitlines() if word in line]
        if found:
            return process, found[0]
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    sys.exit(f"{command[0]} did not start:\n{said}")


def serve(who, names):
    loras = [option for name in names for option in ("--lora", f"{name}={folder}/adapters/{name}")]
    process, address = start(who.replace(" ", "-"), [
        engine, *weights, "--share", "demo", "--batches", "1,4", "--kv-blocks", "64", "--lora-slots", "2", *loras, "--serve", "127.0.0.1:0",
        "--served-name", "base"], "listening on ")
    for _ in range(1200):
        if ask(address, "GET", "/health")[0] == 200:
            return process, address
        if process.poll() is not None:
            break
        time.sleep(0.02)
    process.kill()
    with open(f"{folder}/{who.replace(' ', '-')}.log", encoding="utf-8") as log:
        sys.exit(f"the {who} is not healthy:\n{log.read()}")


def ask(address, method, path, body=None):
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    except OSError:
        return 0, b"no answer"
    finally:
        connection.close()


def complete(address, name):
    status, answer = ask(address, "POST", "/v1/completions", {"model": name, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True})
    if status != 200:
        sys.exit(f"{name} answered {status}: {answer.decode()[:200]}")
    return json.loads(answer)["choices"][0]["text"]


def main():
    make_adapters()
    broker, _ = start("backbone", ["medusa-backbone", "run"], "ready:")
    running = []
    try:
        said, milliseconds = {}, {}
        for who, names in ENGINES.items():
            began = time.monotonic()
            process, address = serve(who, names)
            running.append(process)
            milliseconds[who] = 1000 * (time.monotonic() - began)
            said[who] = {name: complete(address, name) for name in ("base", *names)}
        status = json.loads(subprocess.run(["medusa-backbone", "status", "--json"], capture_output=True, check=True).stdout.splitlines()[0])
    finally:
        for process in running:
            process.terminate()
        for process in [*running, broker]:
            if process is broker:
                broker.terminate()  # when nobody has its memory any more
            process.wait(30)
    print(f'  "{PROMPT}", {TOKENS} tokens; the adapters have random values\n')
    for who, answers in said.items():
        for name, text in answers.items():
            print(f"  {who:<14} {name:<6} {f'rank {ADAPTERS[name]}' if name in ADAPTERS else '':<8} {text!r}")
    print(f"\n  weights on the device: {status['bytes'] / 1e6:.0f} MB once, had by {status['readers']} engines; "
          f"started in {' and '.join(f'{value:.0f}' for value in milliseconds.values())} ms")
    first, second = said.values()
    texts = [first["base"], first["alice"], first["bob"], second["carol"]]
    good = (first["base"], first["bob"]) == (second["base"], second["bob"]) and len(set(texts)) == 4 and status["readers"] == 2
    print("  the same adapter gives the same answer in both engines, and each adapter one of its own" if good else "  WRONG: these answers are not what they should be")
    sys.exit(not good)


main()
