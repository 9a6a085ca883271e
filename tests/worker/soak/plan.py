# SPDX-License-Identifier: Apache-2.0
"""What a soak does: requests of each client, faults, configurations. All of it follows from the seed alone."""
import json
import os
import random
import re
import shutil
import subprocess

from soak import computed
from soak.computed import LIKE_WHOLE

# Models and how often they are asked for; functions on a backbone are models, too.
MODELS = {"alpha": 8, "beta": 5, "gamma": 4, "delta": 2, "omega": 1, "sigma": 2, "sigma-a": 3, "sigma-b": 2, "sigma-c": 1, "tiny": 2, "tiny-one": 2, "tiny-eight": 2,
          "tiny-some": 2}
BASES = {name: name.split("-")[0] for name in MODELS if "-" in name} # adapter -> the model that has it
SOMETIMES = ("omega", "sigma-c") # not in every configuration
COMPUTED = tuple(name for name in MODELS if name.startswith("tiny")) # by llama-engine; the others are engine.py
SIZES_MB = {"alpha": 4, "beta": 4, "gamma": 6, "delta": 2, "omega": 4, "sigma": 4, "tiny": 5}
ROOM_MB = 10 # of the GPU, which has no room for three of the larger ones
KEYS = {"key-red": "red", "key-blue-1": "blue", "key-blue-2": "blue"} # -> the tenant, which the ledger names

# Kinds of requests, how many of a hundred.
KINDS = {"whole": 30, "stream": 28, "long prompt": 5, "long answer": 5, "slow reader": 5, "stalled reader": 2, "left at once": 5,
         "left within": 6, "left within the body": 3, "half closed": 2, "without a key": 2, "unknown model": 2, "no JSON": 2, "page": 3,
         "engine dies": 1}
# Kinds of faults; each comes once in each round, in an order of its own.
FAULTS = ("kill an engine", "kill any process", "stop an engine", "stop an engine for long", "lose the GPU", "fill the disk", "reload", "reload by signal", "bad reload",
          "clock", "clock back", "unload", "unload all", "load", "drain", "lose an adapter", "forget adapters", "unload an adapter", "load an adapter", "pause the daemon", "end the daemon", "kill the daemon")


def requests(seed, client):
    """The requests of a client, without an end: dictionaries."""
    dice, number = random.Random(f"{seed} client {client}"), 0
    while True:
        number += 1
        kind = dice.choices(list(KINDS), KINDS.values())[0]
        request = {"kind": kind, "name": f"{client}.{number}", "think": dice.expovariate(1 / 0.05), "key": dice.choice(list(KEYS)),
               "model": dice.choices(list(MODELS), MODELS.values())[0], "tokens": dice.randrange(1, 12), "token": dice.choice((0, 0.001, 0.01)),
               "prompt": dice.randrange(0, 300) if kind != "long prompt" else dice.randrange(10_000, 700_000),
               "wait": dice.choice((0, 0, 0.02, 0.2)), "at": dice.random(), "stream": dice.random() < 0.5, "page": dice.choice(("/v1/models", "/running", "/metrics", "/health")),
               # nothing but the end of the connection ends the engine's answer
               "until_close": dice.random() < 0.15}
        if request["model"] in COMPUTED and kind in LIKE_WHOLE:
            request["kind"] = "whole"
        yield request


def faults(seed, number):
    """The faults of a round: (kind, seconds before it, seconds that it lasts, model, a number)."""
    dice = random.Random(f"{seed} faults {number}")
    order = list(FAULTS)
    dice.shuffle(order)
    always = [model for model in MODELS if model not in SOMETIMES]
    of = {kind: list(BASES) if kind.endswith("an adapter") else [model for model in always if kind != "forget adapters" or model == "sigma"] for kind in FAULTS}
    return [(kind, dice.uniform(0.1, 1.2), dice.uniform(0.2, 2), dice.choice(of[kind]), dice.randrange(1000)) for kind in order]


def preloaded():
    """The thread sanitizer's library must come first in a program that loads what is built with it; medusa-swap run sees to that."""
    if not os.environ.get("TSAN"):
        return ""
    said = subprocess.run(["ldd", shutil.which("medusa-worker")], capture_output=True, text=True, check=True).stdout
    return f'\n    env: ["LD_PRELOAD={re.search(r"=> (/[^ ]*libtsan[^ ]*)", said)[1]}"]'


def path_of(folder, adapter):
    """Of its file or folder."""
    return computed.path_of(folder, adapter) if adapter in COMPUTED else f"{folder}/{adapter}.json"


def prepare(folder):
    """Makes the adapters, and knows what is right. What starts the engine that computes."""
    for adapter in BASES:
        if adapter not in COMPUTED:
            with open(path_of(folder, adapter), "w", encoding="utf-8") as file:
                json.dump({"text": adapter}, file)
    return computed.prepare(folder)


def engine_of(folder, engines, model, variant):
    """Its command."""
    if model in COMPUTED:
        return engines[1]
    renewed = f" --token 0.00{variant % 4 + 1}" if model == "gamma" else "" # another command: a new engine
    slots = " --lora-slots 2" if model in BASES.values() else ""
    return f"{engines[0]} --name {model} --device-mb {SIZES_MB[model]} --dies-with-device --journal {folder}/journal{slots}{renewed}"


def adapters_of(folder, model, variant):
    """Keys of medusa. What changes with the variant: which adapters there are, and a limit."""
    if model not in BASES.values():
        return ""
    names = [name for name in BASES if BASES[name] == model and (name not in SOMETIMES or variant % 2 == 0)]
    each = ", ".join(f"{name}: {{path: {path_of(folder, name)}, bytes: 1, concurrencyLimit: {5 + variant % 3}}}" for name in names)
    return f", adapter_slots: 2, adapters: {{{each}}}"


def configuration(folder, first_port, engines, variant):
    """The text of a configuration; variants differ in limits, times, the command of one model, and in which models and adapters there are."""
    models = []
    for model in SIZES_MB:
        if model in SOMETIMES and variant % 3 == 2:
            continue
        swap = ", swap: off" if model == "delta" else ""
        ttl = f"\n    ttl: {1 + variant % 3}" if model == "delta" else ""
        models.append(f"""
  {model}:{preloaded() if swap else ""}
    cmd: {engine_of(folder, engines, model, variant)}
    concurrencyLimit: {6 + variant % 5}{ttl}
    medusa: {{memory: {SIZES_MB[model]}MiB{swap}, deadline: 20s, max_wait: 20s, max_batch: {2 + variant % 3}{adapters_of(folder, model, variant)}}}""")
    return f"""
startPort: {first_port}
healthCheckTimeout: 30
unloadTimeout: 3
medusa:
  state: {folder}/usage.sqlite
  gpus: [{{memory: {ROOM_MB}MiB}}]
  tenants: [{{name: red, keys: [key-red]}}, {{name: blue, keys: [key-blue-1, key-blue-2]}}]
  body_limit: 1MB
  bodies_limit: 4MB
  write_timeout: 4s
  write_timeout_waiting: 2s
models:{''.join(models)}
"""
