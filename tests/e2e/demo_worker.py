# SPDX-License-Identifier: Apache-2.0
"""The demo's last part: medusa-worker with a GPU that has not room for its models, requests to them, and a table.

demo_worker.py FOLDER ENGINE GGUF ARTIFACT LLAMACPP: GGUF, ARTIFACT and LLAMACPP (a folder with xllamacpp) may be empty.
"""
import glob
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "worker"))
from daemon import free_ports  # noqa: E402

folder, engine, gguf, artifact, llamacpp = sys.argv[1:6]
PROMPT = "Name three colours."
MB = 1000 * 1000


class Model:
    def __init__(self, name, command, megabytes, what, more="", text=False):
        self.name, self.command, self.megabytes, self.what, self.more, self.text = name, command, megabytes, what, more, text


def serve(options):
    return f"{engine} {options} --serve 127.0.0.1:${{PORT}} --served-name ${{MODEL_ID}}"


def recipe(name, seed, kv_mb):
    block = {"tiny": 8192, "smollm2-135m": 737280}[name]  # bytes of a KV block
    return serve(f"--recipe models/recipes/{name}.yaml --seed {seed} --kv-blocks {kv_mb * MB // block}")


def models():
    """Those on the GPU come first; the last one, if it is there, has none."""
    if gguf:
        # as in the capture, so that its artifact fits
        real = f"--model {gguf} --max-context 512 --batches 1,2,4,8 --max-kv-bytes 268435456"
        found = [Model("smollm2", serve(real), 570, "SmolLM2-135M-Instruct", f"artifact: {artifact}" if artifact else "", text=True),
                 Model("seeded", recipe("smollm2-135m", 3, 60), 360, "its shape, random weights"),
                 Model("tiny", recipe("tiny", 7, 100), 110, "a tiny one, random weights")]
        gpu = 600
    else:
        found = [Model(name, recipe("tiny", seed, kv), kv + 10, "a tiny one, random weights")
                 for name, seed, kv in (("one", 1, 60), ("two", 2, 40), ("three", 3, 30))]
        gpu = 80
    if llamacpp:
        found.append(Model("llama.cpp", f"{sys.executable} tests/e2e/demo_llamacpp.py {gguf} ${{PORT}}", 0,
                           "SmolLM2-135M-Instruct in a real llama.cpp server, on the CPU",
                           "swap: off, memory: 1, host_memory: 300MB", text=True))
    return found, gpu


def configure(found, gpu):
    lines = [f"startPort: {free_ports(4)}", "healthCheckTimeout: 60", "medusa:", f"  gpus: [{{memory: {gpu}MB}}]", "models:"]
    for model in found:
        own = ", ".join(x for x in (f"memory: {model.megabytes}MB" if model.megabytes else "", model.more) if x)
        lines += [f"  {model.name}:", f"    cmd: {model.command}", f"    medusa: {{{own}}}"]
        if model.name == "llama.cpp":
            lines.append(f"    env: [PYTHONPATH={llamacpp}]")
    with open(f"{folder}/worker.yaml", "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


class Worker:
    def __init__(self):
        self.log = open(f"{folder}/worker.log", "wb")
        self.process = subprocess.Popen(["medusa-worker", "--config", f"{folder}/worker.yaml", "--listen", "127.0.0.1:0", "--state",
                                         f"{folder}/worker.state"], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            with open(f"{folder}/worker.log", encoding="utf-8") as file:
                sys.exit(f"the worker did not start:\n{file.read()}")
        self.port = int(line.rsplit(":", 1)[1])

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def states(self):
        connection, response = self.ask("GET", "/running")
        states = {entry["model"]: entry["state"] for entry in json.load(response)["running"]}
        connection.close()
        return states

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.log.close()


def chat(worker, model, tokens):
    """Seconds until the first piece of text, until the end, and the text; a sentence instead of them if it failed."""
    began = time.monotonic()
    connection, response = worker.ask("POST", "/v1/chat/completions", {
        "model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": tokens, "temperature": 0, "stream": True})
    if response.status != 200:
        return f"{response.status}: {response.read().decode()[:200]}"
    first, text = None, ""
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:]).get("choices", []):
            piece = choice.get("delta", {}).get("content") or ""
            if piece and first is None:
                first = time.monotonic() - began
            text += piece
    connection.close()
    return (first, time.monotonic() - began, text) if first is not None else "no text came"


def on_gpu(states, found):
    place = lambda state: [m.name for m in found if m.megabytes and states.get(m.name) == state]
    return f"{', '.join(place('ready')) or '-':<16}{', '.join(place('swapped')) or '-'}"


def one_by_one(worker, found, began):
    order = [found[i] for i in (0, 1, 0, 2, 1, 0, 2, 0)] + found[3:]
    print(f"  {'at':>7}  {'model':<10}{'was':<10}{'first token':>12}{'whole':>10}   {'then on the GPU':<16}swapped out")
    failed, shown = [], {}
    for model in order:
        was = worker.states().get(model.name, "stopped")
        at, got = time.monotonic() - began, chat(worker, model.name, 12)
        if isinstance(got, str):
            failed.append(f"{model.name}: {got}")
            continue
        print(f"  {at:6.2f} s {' '}{model.name:<10}{was:<10}{got[0] * 1000:9.0f} ms{got[1] * 1000:7.0f} ms   {on_gpu(worker.states(), found)}",
              flush=True)
        if shown.setdefault(model.name, got[2]) != got[2]:
            failed.append(f"{model.name}: another text than before: {got[2]!r}, {shown[model.name]!r}")
    for model in found:
        if model.text and model.name in shown:
            print(f"  {model.name}: {PROMPT!r} -> {shown[model.name]!r}")
    return failed, shown


def at_once(worker, found, shown):
    """Eighteen requests together; each gets what it got alone."""
    models_, times, failed = [found[i % 3] for i in range(18)], [], []

    def one(model):
        got = chat(worker, model.name, 12)
        if isinstance(got, str):
            failed.append(f"{model.name}: {got}")
        elif got[2] != shown.get(model.name):
            failed.append(f"{model.name}: another text than alone: {got[2]!r}")
        else:
            times.append(got[0] * 1000)

    threads = [threading.Thread(target=one, args=(model,)) for model in models_]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if times:
        times.sort()
        print(f"  18 requests at once, six for each model: first token after {times[0]:.0f} to {times[-1]:.0f} ms (median {times[len(times) // 2]:.0f}), "
              "each with the text that it got alone")
    return failed


def openai_client(worker, found):
    try:
        import openai
    except ImportError:
        print("  the OpenAI Python client is not installed here (pip install openai): left out")
        return
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{worker.port}/v1", api_key="none")
    answer = client.chat.completions.create(model=found[0].name, messages=[{"role": "user", "content": PROMPT}], max_tokens=12, temperature=0)
    print(f"  the OpenAI Python client {openai.__version__} got {answer.choices[0].message.content!r} from {found[0].name}")


def show_logs():
    """The ends of what the worker and its engines wrote, with the reason of a failure in them."""
    for path in sorted(glob.glob(f"{folder}/**/*.log", recursive=True)):
        with open(path, encoding="utf-8", errors="replace") as file:
            print(f"  {os.path.basename(path)}:", *file.readlines()[-8:], sep="\n    ", file=sys.stderr)


def main():
    found, gpu = models()
    configure(found, gpu)
    print(f"  a GPU with {gpu} MB for " + ", ".join(f"{m.name} ({m.what}, {m.megabytes} MB)" for m in found if m.megabytes))
    for model in found[3:]:
        print(f"  and {model.name}: {model.what}")
    print("  curl http://127.0.0.1:PORT/v1/chat/completions -d '{\"model\": \"" + found[0].name + "\", \"messages\": [...], \"stream\": true}'\n")
    worker = Worker()
    try:
        failed, shown = one_by_one(worker, found, time.monotonic())
        failed += at_once(worker, found, shown) if not failed else []
        openai_client(worker, found)
    finally:
        worker.stop()
    if failed:
        show_logs()
        sys.exit("\n  FAILED: " + "\n  ".join(failed) + f"\n  ({folder}/worker.log)")


main()
