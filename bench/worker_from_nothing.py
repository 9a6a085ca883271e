#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a request to its first token when no engine runs: worker_from_nothing.py FOLDER --recipe FILE [--rounds N].

The reference engine, with weights made on the device and with weights from a file, live and with its graphs restored; and a small engine on
PyTorch, by its command and by a warm template (medusa-template(7)). All through medusa-worker, process start included. The weights' file is in
the page cache; how long reading it took, the engine says itself. h200-worker.sh runs it.
"""
import argparse
import os
import re
import statistics
import sys
import time
import types

import worker_models
from worker_models import BUILD, FIRST, ROOT, Worker, ask

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--engine", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-torch", action="store_true")
    options = parser.parse_args()
    options.folder = folder = os.path.abspath(options.folder)
    os.makedirs(folder, exist_ok=True)
    options.weights = options.models = 1
    options.files = True
    worker_models.make_files(options)
    made = types.SimpleNamespace(**{**vars(options), "files": False})
    worker_models.capture(options)
    port = "--serve 127.0.0.1:${PORT}"
    torch = f"{sys.executable} {HERE}/worker_torch_engine.py ${{PORT}} {ROOT}/{options.recipe} {folder}/weights1.gguf"
    rows = [("the reference engine, weights made on the device", f"{engine(made, 1)} {port}", {}),
            ("the reference engine, weights from a file", f"{engine(options, 1)} {port}", {}),
            ("the same, graphs restored", f"{engine(options, 1)} {port}", {"artifact": f"{folder}/engine1.medusa"})]
    if not options.no_torch:
        rows += [("PyTorch, by its command", torch, {}), ("PyTorch, from a warm template", torch, {"template": "torch"})]
    config = "startPort: 21000\nhealthCheckTimeout: 120\nmedusa:\n  policies: {preloading: none}\n"
    if not options.no_torch:
        config += f"  templates: {{torch: {{cmd: '{sys.executable} -m medusa.template torch torch.nn.functional http.server gguf_weights'}}}}\n"
    config += "models:\n" + "".join(f"  model{i}: {{cmd: '{command}', useModelName: reference, medusa: {worker_models.json.dumps({'swap': 'off', **own})}}}\n"
                                    for i, (_, command, own) in enumerate(rows))
    os.environ["PYTHONPATH"] = f"{ROOT}/models/torch:{HERE}"
    worker = Worker(folder, config)
    while not options.no_torch and "ready:" not in read(f"{folder}/state/template~torch.log"):
        time.sleep(0.1)
    times = [[] for _ in rows]
    for _ in range(options.rounds):
        for i in range(len(rows)):
            answer = ask(worker.port, i, *FIRST)
            if isinstance(answer, str):
                worker.stop()
                sys.exit(f"{rows[i][0]}: {answer}; see {folder}/err and {folder}/state")
            times[i].append(answer[0])
            worker.unload(f"model{i}")
    worker.stop()
    print(f"{options.recipe}, from a request to its first token, {options.rounds} starts each, in turns\n\n| | median | shortest | longest |\n|---|---|---|---|")
    for (what, _, _), seconds in zip(rows, times):
        print(f"| {what} | {statistics.median(seconds):.3f} s | {min(seconds):.3f} s | {max(seconds):.3f} s |")
    print_loads(folder, rows)
    if "does not fork its engine" in read(f"{folder}/err"):
        print("\nAn engine was not forked: the row of the template is none.")


def engine(options, seed):
    """With its progress, which says how long the weights' file took."""
    return worker_models.engine(options, seed).replace(" --quiet", "")


def print_loads(folder, rows):
    """What the reference engines have said of their files; the first row makes its weights on the device."""
    print("\n| of which the weights' file | median | shortest | longest | GB/s (median) | threads |\n|---|---|---|---|---|---|")
    for i, (what, _, _) in enumerate(rows):
        said = re.findall(r"load: ([\d.]+) MB of the file in ([\d.]+) ms, [\d.]+ GB/s by (\d+) threads", read(f"{folder}/state/model{i}.log"))
        if said:
            ms = [float(time) for _, time, _ in said]
            median = statistics.median(ms)
            print(f"| {what} | {median:.0f} ms | {min(ms):.0f} ms | {max(ms):.0f} ms | {float(said[0][0]) / median:.2f} | {said[0][2]} |")


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


main()
