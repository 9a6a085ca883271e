# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of engine.py, by vLLM's API: what an adapter's file says decides whether and how it loads.

The file is JSON: {"text": what requests are answered with, "until": a load ends when this file is there, "status": it fails, "say":
why, "late": it is loaded all the same, "stays": its unload ends when this file is there, "stuck": so many of its unloads fail,
"hangs_up": the connection of a load is closed at once, and the load goes on}. A file that is not there is an adapter that is not there.
"""
import json
import os
import threading
import time


def error(status, message):
    return status, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}


class Adapters:
    """Places for so many; a load beyond them is refused, because whoever decides should have made room."""

    def __init__(self, base, slots, journal):
        self.base, self.slots, self.journal = base, slots, journal
        self.lock = threading.Lock()
        self.loaded, self.coming, self.stuck = {}, set(), {} # stuck: unloads that have failed
        self.until, self.lists = None, 0 # the list is said when this file is there; how often it was asked for

    def note(self, *words):
        if self.journal:
            with open(self.journal, "a", encoding="utf-8") as journal:
                journal.write(" ".join(words) + "\n")

    def list(self):
        self.lists += 1
        while self.until and not os.path.exists(self.until):
            time.sleep(0.01)
        made = [{"id": self.base, "object": "model", "root": self.base, "parent": None}]
        with self.lock:
            return {"object": "list", "data": made + [{"id": name, "object": "model", "root": a["path"], "parent": self.base} for name, a in self.loaded.items()]}

    def load(self, asked, hang_up):
        name, path = asked["lora_name"], asked["lora_path"]
        self.note("load", name)
        with self.lock:
            if name in self.loaded or name in self.coming:
                return error(400, f"The lora adapter '{name}' has already been loaded.")
            if len(self.loaded) + len(self.coming) >= self.slots:
                return error(500, f"no place is left for the lora adapter '{name}'")
            self.coming.add(name)
        try:
            with open(path, encoding="utf-8") as file:
                facts = json.load(file)
            if facts.get("hangs_up"):
                hang_up()
            while facts.get("until") and not os.path.exists(facts["until"]):
                time.sleep(0.01)
        except OSError:
            facts = {"status": 404, "say": f"Loading lora {name} failed: No adapter found for {path}"}
        failed = facts.get("status", 200) != 200
        with self.lock:
            self.coming.remove(name)
            if not failed or facts.get("late"):
                self.loaded[name] = {"path": path, "text": facts.get("text", ""), "stays": facts.get("stays"), "stuck": facts.get("stuck", 0)}
        return error(facts["status"], facts.get("say", "it is broken")) if failed else (200, f"Success: LoRA adapter '{name}' added successfully.")

    def have(self, name, path):
        """From its start, and nobody has asked for it."""
        with open(path, encoding="utf-8") as file:
            self.loaded[name] = {"path": path, "text": json.load(file).get("text", ""), "stays": None, "stuck": 0}

    def unload(self, asked, _):
        name = asked["lora_name"]
        self.note("unload", name)
        with self.lock:
            if name not in self.loaded:
                return error(404, f"The lora adapter '{name}' cannot be found.")
            if self.stuck.get(name, 0) < self.loaded[name]["stuck"]:
                self.stuck[name] = self.stuck.get(name, 0) + 1
                return error(500, f"the lora adapter '{name}' is in use")
            stays = self.loaded.pop(name)["stays"]
        while stays and not os.path.exists(stays):
            time.sleep(0.01)
        return 200, f"Success: LoRA adapter '{name}' removed successfully."

    def forget(self, asked, _):
        """As an engine that was started anew behind everybody's back. until: a file that its list waits for."""
        self.until = asked.get("until")
        with self.lock:
            for name in asked.get("names", list(self.loaded)):
                self.loaded.pop(name, None)
        return 200, "forgotten"

    def post(self, path, body, hang_up):
        """(status, answer) of a request that is about adapters; None: it is not."""
        orders = {"/v1/load_lora_adapter": self.load, "/v1/unload_lora_adapter": self.unload, "/forget": self.forget}
        return orders[path](json.loads(body or "{}"), hang_up) if path in orders else None

    def of(self, model):
        """(a refusal, what its file says) of a request for this model; the adapter it begins with is the one that it ends with."""
        with self.lock:
            if model == self.base or model in self.loaded:
                return None, self.loaded.get(model, {}).get("text")
        return error(404, f"The model `{model}` does not exist."), None
