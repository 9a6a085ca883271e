# SPDX-License-Identifier: Apache-2.0
"""Checks a simulation's JSON and HTML as a browser or a script would read them: exit 1 and a line for each fault."""
import base64
import hashlib
import html.parser
import json
import re
import sys
import xml.etree.ElementTree as xml

faults = []


def expect(right, what):
    if not right:
        faults.append(what)


def rising(values):
    values = [value for value in values if value is not None]  # not a finite number
    return all(a <= b for a, b in zip(values, values[1:]))  # neighbours may be equal in the digits that are written


def check_series(policy, gpus):
    series = policy["series"]
    columns = [series[key] for key in ("waiting", "waiting_most", "running", "arrived", "served", "met", "rejected", "swaps")]
    columns += [column for gpu in series["gpus"] for column in gpu.values()]
    expect(all(len(column) == series["intervals"] <= 500 for column in columns), "JSON: series: columns of one length")
    expect(len(series["gpus"]) in (0, len(gpus)), "JSON: series: a memory for each GPU")
    if series["intervals"]:
        expect(sum(series["arrived"]) == policy["requests"]["all"], "JSON: series: all that arrived")
        expect(sum(series["met"]) == policy["requests"]["met"], "JSON: series: all in time")


def check_shares(policy, declared):
    """Each request is one of a tenant's, and so is all GPU time."""
    tenants, requests = policy["tenants"], policy["requests"]
    expect([t["name"] for t in tenants] == [t["name"] for t in declared], "JSON: tenants: their names")
    if not tenants:
        return
    for key, whole in (("requests", requests["all"]), ("served", requests["served"]), ("met", requests["met"])):
        expect(sum(t[key] for t in tenants) == whole, f"JSON: tenants: {key} add up")
    for reason, count in policy["rejected"].items():
        expect(sum(t["rejected"][reason] for t in tenants) == count, f"JSON: tenants: rejected, {reason}")
    gpu_s, busy = sum(t["gpu_s"] for t in tenants), sum(policy["load"]["gpu_busy_s"])
    expect(abs(gpu_s - busy) <= 1e-4 * busy, f"JSON: tenants: {gpu_s} of {busy} GPU seconds")
    expect(not busy or abs(sum(t["share"] for t in tenants) - 1) < 1e-4, "JSON: tenants: shares add up")


def undocumented(value, known, path=""):
    """Keys that docs/simulate-json.md does not have; the reasons of refusals are words of the library."""
    if isinstance(value, list):
        return set().union(*(undocumented(item, known, path) for item in value[:3])) if value and isinstance(value[0], dict) else set()
    if not isinstance(value, dict) or path.endswith(".rejected"):
        return set()
    below = "distribution" if "p50" in value else path
    found = set()
    for key, item in value.items():
        at = f"{below}.{key}".lstrip(".") + ("[]" if isinstance(item, list) and item and isinstance(item[0], dict) else "")
        if not key.endswith("_hex") and at not in known and not (item == [] and at + "[]" in known):
            found.add(at)
        found |= undocumented(item, known, at)
    return found


def check_cluster(report):
    expect(list(report) == ["tool", "format", "simulated", "cluster", "node", "functions", "trace", "seed", "policy", "routings"], "JSON: keys or their order")
    with open("docs/simulate-json.md", encoding="utf-8") as page:
        missing = undocumented(report, set(re.findall(r"`([a-z_0-9.\[\]]+)`", page.read())))
    expect(not missing, f"JSON: keys that docs/simulate-json.md lacks: {sorted(missing)}")
    for routing in report["routings"]:
        requests, ended = routing["requests"], sum(routing["rejected"].values())
        expect(requests["all"] == requests["served"] + ended + requests["broken"] + requests["nowhere"], f"JSON: {routing['name']}: requests add up")
        expect(routing["ttft_ms"]["count"] == requests["served"] >= requests["met"], f"JSON: {routing['name']}: first tokens")
        expect(sum(routing["found"].values()) >= requests["served"], f"JSON: {routing['name']}: where models were found")


def check_json(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    if "cluster" in report:
        check_cluster(report)
        return report
    expect(list(report) == ["tool", "format", "simulated", "node", "functions", "trace", "seed", "policies"], "JSON: keys or their order")
    expect(report["tool"] == "medusa-simulate" and report["format"] == 1 and report["simulated"] is True, "JSON: what it is")
    with open("docs/simulate-json.md", encoding="utf-8") as page:
        missing = undocumented(report, set(re.findall(r"`([a-z_0-9.\[\]]+)`", page.read())))
    expect(not missing, f"JSON: keys that docs/simulate-json.md lacks: {sorted(missing)}")
    keys = {tuple(policy) for policy in report["policies"]}
    expect(len(keys) <= 1, "JSON: policies with different keys")
    for policy in report["policies"]:
        expect(len(policy["per_function"]) == report["functions"]["count"], "JSON: a row per function")
        requests = policy["requests"]
        expect(requests["rejected"] == sum(policy["rejected"].values()), "JSON: reasons add up")
        expect(requests["all"] == requests["served"] + requests["rejected"] + requests["unfinished"], "JSON: requests add up")
        check_series(policy, report["node"]["gpus"])
        check_shares(policy, report["functions"]["tenants"])
        for key in ("latency_ms", "latency_of_slo", "ttft_ms", "end_ms", "wait_ms", "batch"):
            curve = policy[key]["cdf"]
            expect(len(curve["values"]) == len(curve["parts"]) <= 200, f"JSON: {key}: at most 200 points")
            expect(rising(curve["values"]) and rising(curve["parts"]), f"JSON: {key}: rising")
            expect(not curve["parts"] or curve["parts"][-1] == 1, f"JSON: {key}: ends with all of them")
    return report


class Page(html.parser.HTMLParser):
    void = {"meta", "link", "br", "img", "input", "hr"}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.labels, self.text, self.svgs = [], [], [], [], []
        self.counts, self.policy, self.script, self.tables = {}, "", "", []

    def handle_starttag(self, tag, pairs):
        attributes = dict(pairs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        expect(tag != "script" or not attributes, "HTML: a script from elsewhere")
        expect(tag not in ("link", "iframe", "object", "embed", "base"), f"HTML: <{tag}>")
        for name in attributes:
            expect(name not in ("src", "href", "srcset", "xlink:href", "style") and not name.startswith("on"), f"HTML: {name}= in <{tag}>")
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
        if tag == "th":
            expect(attributes.get("scope") in ("col", "row", "rowgroup"), "HTML: <th> without a scope")
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            expect(attributes.get("role") == "img", "HTML: <svg> without a role")
            self.labels += (attributes.get("aria-labelledby") or "nothing").split()
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, pairs):
        self.handle_starttag(tag, pairs)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag):
        expect(self.open and self.open[-1] == tag, f"HTML: </{tag}> closes {self.open[-1:]}")
        if self.open:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            expect("url(" not in data and "@import" not in data, "HTML: style from elsewhere")
            expect("prefers-color-scheme:dark" in data.replace(" ", ""), "HTML: dark colours")
        elif self.open and self.open[-1] == "script":
            self.script += data
        else:
            self.text.append(data)
            if self.open and self.open[-1] in ("th", "td"):
                self.tables[-1][-1][-1] += data


def check_functions(table, report, policy):
    """The rows of a policy's table: the worst functions of the JSON, and as many as are shown."""
    by_missed = sorted((f["met"] if f["counted"] else f["served"]) - f["requests"] for f in policy["per_function"])
    rows = table[1:]
    expect(len(rows) == min(len(by_missed), 500), f"HTML: {len(rows)} functions of {policy['name']}")
    expect(all(len(row) == len(table[0]) == 13 for row in rows), "HTML: functions: each row has all columns")
    expect(table[0][2] == "objective, ms" and table[0][9:12] == ["TTFT p50, ms", "TTFT p98, ms", "TTFT p99, ms"], f"HTML: heads of functions: {table[0]}")
    expect(sum(int(row[3]) for row in rows) <= policy["requests"]["all"], "HTML: functions: requests")
    if len(by_missed) <= 500:
        expect(sum("never" in row[4] for row in rows) == policy["functions"]["never_served"], "HTML: functions that were never served")
        expect(sum(row[8] == "yes" for row in rows) == policy["functions"]["compliant"], "HTML: functions that are compliant")
        expect(sum(int(row[6]) for row in rows) == policy["requests"]["met"] or policy["functions"]["counted"] < len(rows), "HTML: functions: in time")


def check_tenants(table, report):
    """A row for each tenant, below each other for each policy; the default one only if somebody asked as it."""
    rows = {(row[0], row[1]): row for row in table[1:]}
    expect(table[0][:4] == ["tenant", "policy", "weight", "requests"] and table[0][-1] == "rejected", f"HTML: heads of tenants: {table[0]}")
    expect(len(rows) == len(table) - 1, "HTML: tenants: one row for each policy")
    for policy in report["policies"]:
        for number, tenant in enumerate(policy["tenants"][:65]):
            row = rows.get((tenant["name"], policy["name"]))
            expect((row is None) == (number == 0 and not tenant["requests"]), f"HTML: {tenant['name']} of {policy['name']}")
            if row:
                expect(row[3:5] == [str(tenant["requests"]), str(tenant["served"])], f"HTML: {tenant['name']}: {row}")
                expect(row[11].split(":")[0] == str(sum(tenant["rejected"].values())), f"HTML: {tenant['name']}: {row[11]}")


def check_html(path, report):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    page.close()
    expect(not page.open, f"HTML: {page.open} are not closed")
    expect(len(set(page.ids)) == len(page.ids), "HTML: ids that are not unique")
    expect(set(page.labels) <= set(page.ids), "HTML: labels that name no element")
    expect(page.counts.get("desc", 0) == len(page.labels) // 2 >= 2, "HTML: a description in each plot")
    words = " ".join(page.text)
    for policy in report["policies"]:
        expect(policy["name"] in words and policy["summary"] in words, f"HTML: {policy['name']}")
    for name in report["functions"]["models"]:
        expect(name[:40] in words, f"HTML: model {name[:40]!r}") # long ones are cut
    expect("Simulated" in words, "HTML: that it is simulated")
    digest = base64.b64encode(hashlib.sha256(page.script.encode()).digest()).decode()
    expect(page.policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'", f"HTML: only the script sha256-{digest} runs")
    expect(page.counts.get("script") == 1, "HTML: one script")
    tenants = [page.tables.pop(1)] if report["functions"]["tenants"] else []
    expect(len(page.tables) == 1 + len(report["policies"]), "HTML: a table of figures, and of functions by policy")
    for table in tenants:
        check_tenants(table, report)
    for table, policy in zip(page.tables[1:], report["policies"]):
        check_functions(table, report, policy)
    for svg in re.findall(r"<svg.*?</svg>", text, re.S):
        xml.fromstring(svg)
        for number in re.findall(r'(?:x|y|width|height|d)="([^"]*)"', svg):
            expect("nan" not in number and "inf" not in number, f"SVG: {number}")
    xml.fromstring(text)


checked = check_json(sys.argv[1])
if sys.argv[2:]:  # a cluster has no HTML
    check_html(sys.argv[2], checked)
print("\n".join(faults))
sys.exit(bool(faults))
