# SPDX-License-Identifier: Apache-2.0
"""Tenants of medusa-worker: keys, shares, limits, counts, and what a reload changes: tenants.py FOLDER."""
import sys

from daemon import ENGINE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
journal = f"{folder}/journal"
port = free_ports(8)


class Client:
    """Asks with a key."""

    def __init__(self, daemon, key):
        self.daemon, self.folder, self.key = daemon, daemon.folder, key

    def chat(self, model, **more):
        return self.daemon.ask("POST", "/v1/chat/completions", {"model": model, **more}, {"Authorization": f"Bearer {self.key}"})


def configuration(tenants):
    return f"""
startPort: {port}
apiKeys: [common]
medusa: {{gpus: [{{memory: 100MB}}], tenants: [{tenants}]}}
models:
  one: {{cmd: "{ENGINE} --name one --journal {journal}", concurrencyLimit: 100, medusa: {{memory: 10MB, max_batch: 1}}}}
  many: {{cmd: "{ENGINE} --name many", concurrencyLimit: 100, medusa: {{memory: 10MB, swap: off}}}}
  lent: {{cmd: "{ENGINE} --name lent", medusa: {{memory: 10MB, swap: off, tenant: small}}}}
"""


GOLD, SILVER = "{name: gold, keys: [g1, g2], weight: 3}", "{name: silver, keys: [s]}"
SMALL = "{name: small, keys: [k], max_running: 1, max_waiting: 2}"
d = Daemon(f"{folder}/tenants", configuration(f"{GOLD}, {SILVER}, {SMALL}"))
gold, silver, small, common = (Client(d, key) for key in ("g2", "s", "k", "common"))
ADMIN = {"headers": {"Authorization": "Bearer common"}}


def tenant(name):
    return next(t for t in d.tell("status")["tenants"] if t["tenant"] == name)


def of(model):
    return next(m for m in d.tell("models")["models"] if m["model"] == model)


check("no key", 401, d.chat("many").status)
check("keys", [200] * 4, [client.chat("many").status for client in (gold, silver, small, common)])
check("whose they were", [1] * 4, [tenant(name)["served"] for name in ("gold", "silver", "small", None)])

# One runs, two wait although the engine has room, and the next one is too many; others do not notice.
running = Held(small, "many")
until("it runs", lambda: tenant("small")["running"] == 1)
waiting = Held(small, "many", 2)
until("two wait", lambda: tenant("small")["waiting"] == 2)
check("they wait for the model, too", (1, 2), (of("many")["running"], of("many")["waiting"]))
r = small.chat("many")
check("one too many", (429, "quota", "1"), (r.status, r.json["error"]["code"], r.headers.get("retry-after")))
check("the reason", "the request for model many was not taken: 2 requests of tenant small wait, which is all that may (medusa.tenants.max_waiting)",
      r.json["error"]["message"])
check("the others", [200] * 3, [client.chat("many").status for client in (gold, silver, common)])
check("a model's tenant has those of no other one", 429, common.chat("lent").status)
check("and not those of another one", 200, gold.chat("lent").status)
running.let_go()
check("what ran", [200], [r.status for r in running.wait()])
until("the next one runs", lambda: (tenant("small")["running"], tenant("small")["waiting"]) == (1, 1))

# What is counted.
metrics = dict(line.rsplit(" ", 1) for line in d.ask("GET", "/metrics", **ADMIN).body.decode().splitlines() if not line.startswith("#"))
for name, value in (("waiting", 1), ("running", 1), ("served_total", 2), ("refused_total", 2)):
    check(name, value, int(metrics[f'medusa_worker_tenant_requests_{name}{{tenant="small"}}']))
check("GPU time", True, float(metrics['medusa_worker_tenant_gpu_seconds_total{tenant="small"}']) > 0)
check("of no tenant", "2", metrics['medusa_worker_tenant_requests_served_total{tenant=""}'])
check("limits", (1, 2, 1.0), tuple(tenant("small")[key] for key in ("max_running", "max_waiting", "weight")))
check("status says it", True, "tenant small: weight 1; 1 wait, 1 run, 2 served, 2 refused, 0 failed, 0 cancelled;" in d.ctl("status").stdout)


# A limit that is raised lets go at once whom it held back; a tenant that is gone has no key, and its requests end.
def reload(tenants, owner="small", more=""):
    with open(f"{d.folder}/config.yaml", "w", encoding="utf-8") as file:
        file.write(configuration(tenants).replace("tenant: small", f"tenant: {owner}") + more)
    return d.ctl("reload").returncode


check("reload", 0, reload(f"{GOLD}, {SILVER}, {SMALL.replace('max_running: 1', 'max_running: 2')}"))
until("both run", lambda: (tenant("small")["running"], tenant("small")["waiting"]) == (2, 0))
check("one is gone, one is new", 0, reload(f"{GOLD}, {SILVER}, {{name: new, keys: [n]}}", owner="new"))
check("its key", 401, small.chat("many").status)
check("the new one", 200, Client(d, "n").chat("many").status)
waiting.let_go()
check("its requests", [200] * 2, [r.status for r in waiting.wait()])
check("reload", 0, reload(f"{GOLD}, {SILVER}, {SMALL}"))
check("it is back, and its counts go on", (200, 5), (small.chat("many").status, tenant("small")["served"]))
more = SMALL.replace("max_waiting: 2", "max_waiting: 9")
check("what is refused as a whole", 3, reload(f"{GOLD}, {SILVER}, {more}", more="  big: {cmd: 'x ${PORT}', medusa: {memory: 1TB}}\n"))
check("changes no tenant", 2, tenant("small")["max_waiting"])

# Of those that wait, gold has three turns for each of silver, although silver came first.
first = Held(common, "one", id="first")
until("one runs", lambda: of("one")["running"] == 1)
behind = Held(silver, "one", 12, id="silver", wait=0.05).let_go()
until("silver waits", lambda: tenant("silver")["waiting"] == 12)
before = Held(gold, "one", 12, id="gold", wait=0.05).let_go()
until("gold waits", lambda: tenant("gold")["waiting"] == 12)
first.let_go()
check("all are served", [200] * 25, [r.status for held in (first, behind, before) for r in held.wait()])
with open(journal, encoding="utf-8") as file:
    order = file.read().split()[1:17]
check(f"gold's part of the first 16: {order}", lambda part: 10 <= part <= 14, order.count("gold"))
check("the exit code", 0, d.stop())
finish()
