# SPDX-License-Identifier: Apache-2.0
"""Each request is served, refused, failed or cancelled, and all counts agree on which: counts.py FOLDER."""
import json
import sys

from daemon import ENGINE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
d = Daemon(f"{folder}/counts", f"""
startPort: {free_ports(8)}
apiKeys: [common]
medusa: {{gpus: [{{memory: 100MB}}], state: {folder}/usage.sqlite, tenants: [{{name: team, keys: [t], max_running: 2, max_waiting: 1}}]}}
models:
  good: {{cmd: "{ENGINE} --name good", concurrencyLimit: 4, medusa: {{memory: 10MB, swap: off}}}}
  none: {{cmd: "/no/such/program ${{PORT}}", medusa: {{memory: 10MB, swap: off}}}}
  dies: {{cmd: "{ENGINE} --name dies --die-at-start", medusa: {{memory: 10MB, swap: off}}}}
""")
ENDS = ("served", "refused", "failed", "cancelled")
PARTS = {"served": ["served"], "refused": ["refused", "limited"], "failed": ["failed"], "cancelled": ["left_waiting", "left_running"]}


class Client:
    """Asks with a key."""

    def __init__(self, key):
        self.folder, self.key = d.folder, key

    def head(self):
        return {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}

    def chat(self, model, **more):
        return d.ask("POST", "/v1/chat/completions", {"model": model, **more}, self.head())

    def leave(self, model):
        """Asks, and is gone before the answer."""
        before = tenant("team")["running"]
        connection = d.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": model, "until": f"{folder}/never"}), self.head())
        until("it runs", lambda: tenant("team")["running"] > before)
        connection.close()
        until("it has left", lambda: tenant("team")["running"] == before)


def tenant(name):
    return next(t for t in d.tell("status")["tenants"] if t["tenant"] == name)


def ends(counts):
    return {end: counts[end] for end in ENDS}


def metrics():
    text = d.ask("GET", "/metrics", headers={"Authorization": "Bearer common"}).body.decode()
    return dict(line.removeprefix("medusa_worker_").rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


team, common = Client("t"), Client("common")
check("engines that do not start", [502] * 4, [team.chat(model).status for model in ("none", "none", "dies", "dies")])
check("an engine that dies each time", 502, team.chat("good", die=True).status)
check("one that is served", 200, team.chat("good").status)
team.leave("good")
running = Held(team, "good", 2)
until("two run", lambda: tenant("team")["running"] == 2)
waiting = Held(team, "good")
until("one waits", lambda: tenant("team")["waiting"] == 1)
check("vLLM's names", ["2", "1", "0", "0"], [metrics()[f'vllm:num_requests_{what}{{model_name="{model}"}}'] for model in ("good", "none") for what in ("running", "waiting")])
check("beyond the tenant's limit", 429, team.chat("good").status)
other = Held(common, "good")
until("four are there", lambda: tenant(None)["running"] == 1)
r = common.chat("good")
check("beyond the model's limit", (429, "model good has 4 requests already, and its concurrencyLimit is 4"), (r.status, r.json["error"]["message"]))
r = team.chat("good")
check("the same of the tenant", 429, r.status)
for held in (running, waiting, other):
    check("what was held", {200}, {r.status for r in held.let_go().wait()})

expected = {"team": {"served": 4, "refused": 2, "failed": 5, "cancelled": 1}, "": {"served": 1, "refused": 1, "failed": 0, "cancelled": 0}}
models = {"good": {"served": 5, "refused": 3, "failed": 1, "cancelled": 1}, "none": {"served": 0, "refused": 0, "failed": 2, "cancelled": 0}}
models["dies"] = models["none"]
status, counted = d.tell("status"), metrics()
check("the daemon", {end: sum(one[end] for one in expected.values()) for end in ENDS}, ends(status))
check("tenants", list(expected.values()), [ends(t) for t in status["tenants"]])
check("models", models, {m["model"]: ends(m) for m in d.tell("models")["models"]})
for name, wanted in expected.items():
    check(f"metrics of tenant {name!r}", wanted, {end: int(counted[f'tenant_requests_{end}_total{{tenant="{name}"}}']) for end in ENDS})
for name, wanted in models.items():
    check(f"metrics of model {name}", wanted,
          {end: sum(int(counted[f'requests_{part}_total{{model="{name}"}}']) for part in PARTS[end]) for end in ENDS})
    check(f"the sum of model {name}", sum(wanted.values()), int(counted[f'requests_total{{model="{name}"}}']))
# Tries are counted under a name of their own: one is made again.
check("failures of engines", {"good": 2, "none": 4, "dies": 4}, {m["model"]: m["failures"] for m in d.tell("models")["models"]})
check("as text", True, "5 served, 3 refused, 5 failed, 1 cancelled" in d.ctl("status").stdout)
check("the tenant", True, "4 served, 2 refused, 5 failed, 1 cancelled;" in d.ctl("status").stdout)
row = next(line for line in d.ctl("models").stdout.split("\n") if line.startswith("good ")).split()
check("as a table", ["5", "3", "1", "1"], row[-7:-3])
r = d.ctl("trace", "--since", "1h", "--to", f"{folder}/trace")
check("a trace has those that were served", (0, True), (r.returncode, "5 requests that were served; 7 that were refused, failed or left are not in it" in r.stdout))
check("the exit code", 0, d.stop())
finish()
