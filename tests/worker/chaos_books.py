# SPDX-License-Identifier: Apache-2.0
"""What clients of a cluster were answered, and what must be so whatever was done to it: requests, judgement, and accounts of nodes (cluster_chaos.py)."""
import collections
import http.client
import json
import re
import threading
import time

from answers import Answer
from daemon import PATIENCE
from soak.books import identity, read_metrics, sums

BOUND = 2 * PATIENCE  # seconds in which each request has ended, on the slowest machine
REASONS = {(502, "peer_failed"), (503, "node_unreachable"), (503, "draining"), (502, "engine_failed")}
COMPUTED = "chat"  # by engines that compute, and keep no journal


class Wrong(Exception):
    """What must never happen."""


class Fault:
    """nodes: those that may do anything meanwhile; pairs: (who asks, who is asked) that can't; leaves: nodes go by themselves, and are forgotten."""

    def __init__(self, kind, nodes=(), pairs=(), leaves=False):
        self.kind, self.nodes, self.pairs, self.leaves = kind, set(nodes), set(pairs), leaves
        self.began, self.ended = time.monotonic(), None  # ended: all nodes know each other again


def body_of(request):
    if request["model"] == COMPUTED:
        return "/v1/completions", {"model": COMPUTED, "prompt": "Hello", "max_tokens": 8, "temperature": 0}
    return "/v1/chat/completions", {"model": request["model"], "messages": [], "id": request["name"], "prove": request["name"], "stream": request["stream"],
                                    "max_tokens": request["tokens"], "token": request["token"], "wait": request["wait"]}


def judge_stream(text, right):
    """What came of a stream that has ended: nothing twice, nothing left out."""
    got, done = "", False
    for event in text.split("\n\n"):
        if not event.strip() or event.startswith(":"):
            continue
        if done or not event.startswith("data: "):
            raise Wrong(f"within a stream: {event[:200]!r}{' after its end' if done else ''}")
        if event == "data: [DONE]":
            done = True
            continue
        value = json.loads(event[6:])
        if "error" in value:
            if not right.text().startswith(got):
                raise Wrong(f"wrong pieces before an error: {got[:200]!r}")
            return f"broken off: {value['error'].get('code')}"
        got += "".join(choice["delta"].get("content", "") for choice in value["choices"])
    if not right.text().startswith(got) or (done and got != right.text()):
        raise Wrong(f"a wrong answer: {got[:200]!r}")
    return "served" if done else "broken off"


def judge(request, status, body, whole, texts):
    if status != 200:
        if not whole:
            return "broken off"
        error = json.loads(body)["error"]
        return f"refused: {status} {error.get('code')}"
    if request["model"] == COMPUTED:
        text = json.loads(body)["choices"][0]["text"] if whole else None
        if whole and texts.setdefault(COMPUTED, text) != text:
            raise Wrong(f"other tokens than before: {text!r}")
        return "served" if whole else "broken off"
    right = Answer(request["model"], body_of(request)[1])
    if request["stream"]:
        said = judge_stream(body.decode(), right)
        return "broken off" if said == "served" and not whole else said
    if whole and json.loads(body) != right.whole():
        raise Wrong(f"a wrong answer: {body[:200]!r}")
    if not whole and not json.dumps(right.whole()).encode().startswith(body):
        raise Wrong(f"a wrong beginning: {body[:200]!r}")
    return "served" if whole else "broken off"


def ask(port, request, texts):
    """The outcome. request["got"] tells others how many bytes of the answer have come so far."""
    connection, body, whole, status = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND), b"", False, 0
    try:
        path, asked = body_of(request)
        connection.request("POST", path, json.dumps(asked), {"Content-Type": "application/json"})
        response = connection.getresponse()
        status = response.status
        while piece := response.read1(65536):
            body += piece
            request["got"] = len(body)
        whole = not response.length  # None: chunked, and its end was read; else what is missing
    except TimeoutError:
        raise Wrong(f"no end within {BOUND} s, after {len(body)} bytes") from None
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    if not status:
        return "lost"
    try:
        return judge(request, status, body, whole, texts)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise Wrong(f"no answer that can be read: {status} {body[:200]!r}: {error!r}") from None


class Books:
    def __init__(self, owners, folder, say):
        self.owners, self.folder, self.say = owners, folder, say  # say: of a violation
        self.lock, self.faults, self.texts = threading.Lock(), [], {}
        self.all, self.checks = collections.Counter(), 0
        self.round, self.before, self.lost_answers, self.answered = [], {}, 0, 0  # round: (request, outcome)
        self.first = None  # lives of nodes in the beginning
        self.read = collections.Counter()  # bytes of journals
        self.executed = collections.Counter()  # by node, of all rounds
        self.slowest = 0.0  # of requests that had another node to go to

    def expect(self, good, what):
        with self.lock:
            self.checks += 1
        if not good:
            self.say(what)

    # ---- a request has ended ----

    def note(self, request, outcome, began, ended):
        faults = [f for f in self.faults if f.began <= ended and (f.ended is None or f.ended >= began)]
        impaired = set().union(*(f.nodes for f in faults))
        pairs = set().union(*(f.pairs for f in faults))
        gateway, model = request["gateway"], request["model"]
        free = [o for o in self.owners[model] if o not in impaired and (gateway, o) not in pairs]
        with self.lock:
            self.all[outcome] += 1
            self.round.append((request, outcome))
            if free and gateway not in impaired and faults:
                self.slowest = max(self.slowest, ended - began - request["wait"] - request["tokens"] * request["token"])
        if gateway in impaired:
            return  # what has come of it was right: judge() has seen to that
        what = f"{request['name']}, {model} asked at {gateway}{', streamed' if request['stream'] else ''}: {outcome}, while {[f.kind for f in faults]}"
        self.expect(outcome != "lost", f"no answer and no error: {what}")
        if outcome == "served":
            return
        hurt = impaired or pairs
        if outcome.startswith("broken off"):
            self.expect(hurt, f"nothing happened to who answers: {what}")
            return
        code = tuple(outcome.split()[1:])
        gone = any(f.leaves for f in faults)
        self.expect((int(code[0]), code[1]) in REASONS or (gone and code == ("404", "model_not_found")), f"no such refusal: {what}")
        self.expect(not free, f"{free} could have answered: {what}")

    # ---- at rest: no request is open ----

    def journal(self, node):
        path = f"{self.folder}/journal-{node}"
        try:
            with open(path, encoding="utf-8") as file:
                file.seek(self.read[node])
                lines = file.read()
        except FileNotFoundError:
            return collections.Counter()
        self.read[node] += len(lines)
        return collections.Counter(lines.split())

    def rest(self, nodes, lives):
        """lives: of each node, a number; another one than at the last rest: it was killed or ended since."""
        self.first = self.first or lives
        journals = {name: self.journal(name) for name in nodes}
        times = sum(journals.values(), collections.Counter())
        outcomes = {request["name"]: (request, outcome) for request, outcome in self.round if request["model"] != COMPUTED}
        self.expect(not set(times) - set(outcomes), f"engines have seen requests that nobody has sent: {list(set(times) - set(outcomes))[:3]}")
        for name, (request, outcome) in outcomes.items():
            self.expect(times[name] <= 2, f"{name} was executed {times[name]} times")
            self.expect(outcome != "served" or times[name], f"{name} was answered, and no engine has seen it")
            calm = not any(request["gateway"] in f.nodes for f in self.faults[-1:])
            if outcome.startswith("broken off") and calm:
                self.expect(times[name] == 1, f"{name} was executed {times[name]} times, although bytes of its answer had been sent: {outcome}")
        metrics = {name: node.get("/metrics").body.decode() for name, node in nodes.items()}
        for name in nodes:
            self.executed[name] += sum(journals[name].values())
            once = {r["name"]: r for r, o in outcomes.values() if o == "served" and times[r["name"]] == 1 and journals[name][r["name"]]}
            before = self.before.get(name)
            same = before and before[0] == lives[name]
            if not same:
                self.lost_answers += len(once)
            self.compare_models(name, metrics[name], before[1] if same else None, journals[name], once, outcomes)
            self.compare_gateway(name, metrics[name], before[1] if same else None, journals, times, outcomes)
            self.before[name] = (lives[name], metrics[name])
        with self.lock:
            self.answered += sum(outcome == "served" for _, outcome in outcomes.values())
            self.round = []

    def compare_models(self, node, text, before, journal, once, outcomes):
        """What a node has counted as served is what it has served, each once."""
        now, then = read_metrics(text), read_metrics(before or "")
        wrong = identity({m: c for m, c in now.items() if m and "requests_total" in c})
        self.expect(not wrong, f"counters of {node} do not add up: {wrong}")
        for model, owners in self.owners.items():
            if node not in owners or model == COMPUTED:
                continue
            served = now[model].get("requests_served_total", 0) - then[model].get("requests_served_total", 0)
            least = sum(r["model"] == model for r in once.values()) if before else 0
            most = sum(name in outcomes and outcomes[name][0]["model"] == model for name in journal)
            self.expect(least <= served <= most, f"{node} counts {served:.0f} requests of {model} as served; it has answered {least} for sure, and executed {most}")

    def compare_gateway(self, node, text, before, journals, times, outcomes):
        """What was passed on has ended in one way, and what another node has answered is counted once."""
        now, then = targets_of(text), targets_of(before or "")
        for target, counts in now.items():
            ends = sum(counts[part] for part in ("served", "failed", "cancelled", "refused"))
            self.expect(counts["total"] == ends and not counts["open"], f"what {node} has asked of {target} does not add up: {dict(counts)}")
            if not before or target not in then:
                continue
            served = counts["served"] - then[target]["served"]
            mine = [(r["name"], o) for r, o in outcomes.values() if r["gateway"] == node]
            least = sum(o == "served" and times[name] == 1 and journals[target][name] for name, o in mine)
            doubt = sum(o != "served" or times[name] != 1 for name, o in mine) + sum(r["model"] == COMPUTED and r["gateway"] == node for r, _ in self.round)
            twice = sum(o == "served" and times[name] == 2 and journals[target][name] for name, o in mine)
            self.expect(least <= served <= least + doubt, f"{node} counts {served:.0f} answers of {target}; {least} are sure, {doubt} in doubt, {twice} executed twice")
        passed, retries = number(text, "passed_total"), number(text, "retries_total")
        taken, failed = (sum(counts[part] for counts in now.values()) for part in ("total", "failed"))
        self.expect(passed >= taken, f"{node} has passed {passed:.0f} requests on, and targets were given {taken:.0f}")
        self.expect(retries <= failed or passed > taken, f"{node} has tried {retries:.0f} requests elsewhere, and only {failed:.0f} have failed")

    def finish(self, nodes):
        """SQLite's account of each node and of all of them, when all have written it and ended."""
        written = 0
        for node in nodes:
            count = sum(n for (model, _, kind), n in sums(f"{self.folder}/usage-{node}.sqlite").items() if kind == "requests" and model != COMPUTED)
            self.expect(count <= self.executed[node], f"{node} has accounted for {count} requests, and executed {self.executed[node]}")
            written += count
            life, text = self.before[node]
            served = sum(counts.get("requests_served_total", 0) for model, counts in read_metrics(text).items() if model in self.owners and model != COMPUTED)
            self.expect(life != self.first[node] or count == served, f"{node}, which has lived all the while, has accounted for {count} requests, and served {served:.0f}")
        self.expect(written >= self.answered - self.lost_answers, f"nodes have accounted for {written} requests; {self.answered} were answered, {self.lost_answers} by nodes that were killed")
        return written


def number(text, name):
    found = re.search(rf"^medusa_worker_cluster_{name} (\S+)$", text, re.M)
    return float(found[1]) if found else 0


def targets_of(text):
    """{node: {total, served, failed, cancelled, refused, open}}"""
    found = collections.defaultdict(collections.Counter)
    for name, node, value in re.findall(r'^medusa_worker_cluster_requests_(\w+)\{node="([^"]*)"\} (\S+)$', text, re.M):
        found[node][name.removesuffix("_total")] = float(value)
    return found
