# SPDX-License-Identifier: Apache-2.0
"""A daemon whose model "base" has adapters, whose files say how they load (engine_adapters.py)."""
import json
import os
import signal

from daemon import ENGINE, Daemon, check, free_ports, lives, until


def ask(daemon, model):
    """What a request is answered by: status, engine, what the adapter's file says."""
    r = daemon.chat(model)
    return r.status, r.json.get("name"), r.json.get("adapter")


def text(replies):
    return [(r.status, r.json.get("adapter")) for r in replies]


def errors(reply):
    error = reply.json.get("error", {})
    return reply.status, error.get("code"), error.get("message")


def states(daemon):
    return {m["model"]: m["state"] for m in daemon.tell("models")["models"]}


class World:
    """more: keys of adapters; others: further models; own: keys of base's medusa."""

    def __init__(self, folder, names, slots=2, slow="", more=None, others="", own="memory: 10MB", engine="", base="", hooks="", node=""):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.names, self.slots, self.more = folder, list(names), slots, dict(more or {})
        self.others, self.own, self.engine, self.base, self.hooks = others, own, engine, base, hooks
        self.node = node or "gpus: [{memory: 300MB}], policies: {preloading: none}"
        self.port = free_ports(20)
        self.env = {"HOSTCUDA_SHARED": f"{folder}/devices"}
        self.pid = 0
        self.files = {}
        for name in names:
            self.write(name)
        for name in slow:
            self.slow(name)

    # ---- adapters' files ----

    def path(self, name):
        return self.files.get(name, f"{self.folder}/{name}.json")

    def write(self, name, text=None, **facts):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump({"text": text or f"text of {name}", **facts}, file)

    def slow(self, name):
        """Its loads end after let_load()."""
        if os.path.exists(self.gate(name)):
            os.unlink(self.gate(name))
        self.write(name, until=self.gate(name))

    def gate(self, name):
        return f"{self.folder}/{name}.gate"

    def let_load(self, name):
        with open(self.gate(name), "w", encoding="utf-8"):
            pass

    def journal(self):
        try:
            with open(f"{self.folder}/journal", encoding="utf-8") as file:
                return file.read().split("\n")[:-1]
        except FileNotFoundError:
            return []

    # ---- the daemon ----

    def config(self):
        adapters = "".join(f"        {n}: {{path: {self.path(n)}{', ' + self.more[n] if n in self.more else ''}}}\n" for n in self.names)
        return (f"startPort: {self.port}\nmedusa: {{{self.node}}}\n" + (f"hooks: {self.hooks}\n" if self.hooks else "")
                + f"models:\n  base:\n    cmd: \"{ENGINE} --name base --lora-slots {self.slots} --lora-journal {self.folder}/journal {self.engine}\"\n"
                + (f"    {self.base}\n" if self.base else "") + f"    medusa:\n      {self.own}\n      adapter_slots: {self.slots}\n"
                + "      adapters:\n" + adapters + self.others)

    def start(self, key=None):
        d = Daemon(self.folder, self.config(), env=self.env)
        headers = {"Authorization": f"Bearer {key}"} if key else None
        r = d.ask("POST", "/v1/chat/completions", {"model": "base", "messages": []}, headers) if not self.hooks else None
        if r:
            check("the base answers", (200, "base"), (r.status, r.json.get("name")))
            self.pid = r.json.get("pid")
            with open(f"{self.folder}/journal", "w", encoding="utf-8"):
                pass
        return d

    def rewrite(self, daemon):
        """The configuration is as this says now, and is read anew."""
        with open(f"{self.folder}/config.yaml", "w", encoding="utf-8") as file:
            file.write(self.config())
        return daemon.ctl("reload")

    def of(self, daemon, model):
        return next(m for m in daemon.tell("models")["models"] if m["model"] == model)

    def last_engine(self, daemon):
        """The process that has printed last; 0: none lives. Engines print into files by way of another process, so it may be an earlier one for a moment."""
        pids = [int(line.split(", pid ")[1].split(",")[0]) for line in daemon.engine_log("base").splitlines() if ", pid " in line]
        return pids[-1] if pids and lives(pids[-1]) else 0

    def kill(self, daemon):
        """The engine, which is there, dies: whatever it does."""
        os.kill(until("the engine is there", lambda: self.last_engine(daemon)), signal.SIGKILL)
