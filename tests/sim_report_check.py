# SPDX-License-Identifier: Apache-2.0
"""Checks a simulation's JSON and HTML as a browser or a script would read them: exit 1 and a line for each fault."""
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


def check_json(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    expect(list(report) == ["tool", "format", "simulated", "node", "functions", "trace", "seed", "policies"], "JSON: keys or their order")
    expect(report["tool"] == "medusa-simulate" and report["format"] == 1 and report["simulated"] is True, "JSON: what it is")
    keys = {tuple(policy) for policy in report["policies"]}
    expect(len(keys) <= 1, "JSON: policies with different keys")
    for policy in report["policies"]:
        expect(len(policy["per_function"]) == report["functions"]["count"], "JSON: a row per function")
        requests = policy["requests"]
        expect(requests["rejected"] == sum(policy["rejected"].values()), "JSON: reasons add up")
        expect(requests["all"] == requests["served"] + requests["rejected"] + requests["unfinished"], "JSON: requests add up")
        check_series(policy, report["node"]["gpus"])
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
        self.counts = {}

    def handle_starttag(self, tag, pairs):
        attributes = dict(pairs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        expect(tag not in ("script", "link", "iframe", "object", "embed", "base"), f"HTML: <{tag}>")
        for name in attributes:
            expect(name not in ("src", "href", "srcset", "xlink:href", "style") and not name.startswith("on"), f"HTML: {name}= in <{tag}>")
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
        else:
            self.text.append(data)


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
        expect(name in words, f"HTML: model {name!r}")
    expect("Simulated" in words, "HTML: that it is simulated")
    for svg in re.findall(r"<svg.*?</svg>", text, re.S):
        xml.fromstring(svg)
        for number in re.findall(r'(?:x|y|width|height|d)="([^"]*)"', svg):
            expect("nan" not in number and "inf" not in number, f"SVG: {number}")
    xml.fromstring(text)


check_html(sys.argv[2], check_json(sys.argv[1]))
print("\n".join(faults))
sys.exit(bool(faults))
