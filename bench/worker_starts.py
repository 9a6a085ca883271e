#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a request to the first byte of its answer when the engine must be started: by its command, and by a template.

Recorded in bench/results/worker-starts.md; RECORD=0 only prints. worker.sh runs it at its end; ROUNDS is how often each is started.
"""
import datetime
import http.client
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
ROUNDS = int(os.environ.get("ROUNDS", "9"))
# What engines in Python import, as far as it is here everywhere; the second one works for 2 s more, as the import of a framework does.
LIBRARY = "import asyncio, http.server, multiprocessing, ssl, unittest.mock, xml.dom.minidom\n"
IMPORTS = {"modules of the standard library": LIBRARY,
           "the same, and 2 s of work": LIBRARY + "import time\nend = time.process_time() + 2\nwhile time.process_time() < end:\n    pass\n"}
SERVER = """
import {module}
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{{}}")

    do_POST = do_GET

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def write(folder, name, text):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        file.write(text)


def configure(folder):
    port = random.randrange(20000, 30000)
    write(folder, "plain.py", SERVER.format(module="http.server"))
    templates, models = "", f'  plain: {{cmd: "{sys.executable} {folder}/plain.py ${{PORT}}"}}\n'
    for number, text in enumerate(IMPORTS.values()):
        write(folder, f"slow{number}.py", text)
        write(folder, f"server{number}.py", SERVER.format(module=f"slow{number}"))
        command = f'cmd: "{sys.executable} {folder}/server{number}.py ${{PORT}}"'
        templates += f'    t{number}: {{cmd: "{sys.executable} -m medusa.template slow{number}"}}\n'
        models += f"  command{number}: {{{command}}}\n  template{number}: {{{command}, medusa: {{template: t{number}}}}}\n"
    write(folder, "config.yaml", f"startPort: {port}\nmedusa:\n  policies: {{preloading: none}}\n  templates:\n{templates}models:\n{models}")


def ask(port, method, path, body=None):
    """Seconds to the first byte of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    began = time.monotonic()
    connection.request(method, path, json.dumps(body) if body else None)
    response = connection.getresponse()
    took = time.monotonic() - began
    text = response.read()
    connection.close()
    if response.status != 200:
        sys.exit(f"{method} {path}: {response.status}: {text!r}")
    return took


def measure(port):
    times = {}
    names = ["plain"] + [f"{kind}{number}" for number in range(len(IMPORTS)) for kind in ("command", "template")]
    for _ in range(ROUNDS):
        for name in names:
            times.setdefault(name, []).append(ask(port, "POST", "/v1/completions", {"model": name}))
            ask(port, "GET", "/unload")
    return {name: statistics.median(values) for name, values in times.items()}


def table(times):
    lines = ["| what the engine imports | its command | a template | ratio |", "|---|---|---|---|"]
    for number, what in enumerate(IMPORTS):
        command, template = times[f"command{number}"], times[f"template{number}"]
        lines.append(f"| {what} | {command * 1e3:.0f} ms | {template * 1e3:.0f} ms | {command / template:.1f} |")
    return "\n".join(lines + ["", f"A server that imports nothing but `http.server`, by its command: {times['plain'] * 1e3:.0f} ms."])


def printed(path):
    """What is in a log, which is there only once something was printed."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def serve(folder):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/models/torch:{folder}", "XDG_RUNTIME_DIR": folder}
    os.chmod(folder, 0o700)
    with open(f"{folder}/err", "w", encoding="utf-8") as err:
        worker = subprocess.Popen([f"{BUILD}/bin/medusa-worker", "--config", f"{folder}/config.yaml", "--listen", "127.0.0.1:0", "--state", f"{folder}/state"],
                                  env=environment, stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        port = int(worker.stdout.readline().rsplit(":", 1)[1])
        for number in range(len(IMPORTS)):
            while "ready:" not in printed(f"{folder}/state/template-t{number}.log"):
                time.sleep(0.05)
        times = measure(port)
    finally:
        worker.terminate()
        worker.wait()
    with open(f"{folder}/err", encoding="utf-8") as file:
        if "does not fork its engine" in file.read():
            sys.exit("an engine was not forked: see the worker's messages")
    return times


def main():
    before = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        configure(folder)
        times = serve(folder)
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    load = "load average " + " ".join(f"{x:.2f}" for x in before) + " at the beginning, " + " ".join(f"{x:.2f}" for x in os.getloadavg()) + " at the end"
    text = f"""# Engines from templates

Written by `bench/worker_starts.py`: from a request to the first byte of its answer through `medusa-worker`, when the engine has to be started; median of
{ROUNDS} starts each, in turns. PyTorch is not among the imports: it need not be there.

{platform.machine()}, {model}, {os.cpu_count()} cores, Python {platform.python_version()}; {load}; {datetime.date.today()}; commit {commit}

{table(times)}
"""
    print(text, end="")
    if os.environ.get("RECORD") != "0":
        with open(f"{HERE}/results/worker-starts.md", "w", encoding="utf-8") as file:
            file.write(text)


main()
