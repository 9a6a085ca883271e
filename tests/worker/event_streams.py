# SPDX-License-Identifier: Apache-2.0
"""Streams of events in whole events, and answers that the worker cannot read: event_streams.py FOLDER."""
import gzip
import http.client
import json
import sys

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
d = Daemon(f"{folder}/streams", f"""
startPort: {free_ports(4)}
healthCheckTimeout: 60
models:
  a: {{cmd: "{ENGINE} --name a", concurrencyLimit: 3}}
  slow: {{cmd: "{ENGINE} --name slow --start 0.3", sendLoadingState: true}}
""")
STREAM, JSON = {"Content-Type": "text/event-stream"}, {"Content-Type": "application/json"}
GZIP = {"Content-Encoding": "gzip"}
LIVES, DIES = "the message was cut off", "its engine was killed by SIGKILL"


def read_events(text):
    """The data of what a client dispatches, by the rules of the HTML standard."""
    text = text.decode("latin-1").removeprefix("\xef\xbb\xbf").replace("\r\n", "\n").replace("\r", "\n")
    events, data = [], []
    for line in text.split("\n")[:-1]:
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            events.append("\n".join(data))
            data = []
    return events


class Asked:
    """A request whose answer is these pieces of bytes; the first `least` bytes of it are there when the constructor ends."""
    number = 0

    def __init__(self, pieces, headers=None, least=0, model="a", path="/v1/chat/completions", how=None, **raw):
        Asked.number += 1
        self.file = f"{folder}/asked{Asked.number}-"
        raw = {"status": 200, "headers": STREAM if headers is None else headers, "pieces": [p.decode("latin-1") for p in pieces], "after": self.file, **raw}
        if how == "dies":
            raw["dies"] = f"{self.file}dies"
        raw["whole"] = not how
        self.connection = d.connect()
        self.connection.request("POST", path, json.dumps({"model": model, "stream": True, "raw": raw}), {"Accept-Encoding": "gzip, br"})
        self.response = self.connection.getresponse()
        self.status, self.headers = self.response.status, {k.lower(): v for k, v in self.response.getheaders()}
        self.body = self.response.read(least) if least else b"" # read(0) would wait for a chunk

    def let(self, what):
        open(f"{self.file}{what}", "w", encoding="utf-8").close()
        return self

    def rest(self):
        """All that is still to come."""
        self.whole = True
        try:
            self.body += self.response.read()
        except http.client.IncompleteRead as cut:
            self.body += cut.partial
            self.whole = False
        self.connection.close()
        self.events = read_events(self.body)
        return self

    def error(self):
        """What the last event says has failed."""
        try:
            return json.loads(self.events[-1])["error"]["message"]
        except (ValueError, KeyError, IndexError, TypeError):
            return self.body.decode("latin-1")


# ---- streams that are broken off ----
for how, why in (("cut", LIVES), ("dies", DIES)):
    for what, text, sent in (
            ("LF", b"data: a\n\ndata: b\n\ndata: c", b"data: a\n\ndata: b\n\n"),
            ("CR", b"data: a\r\rdata: b\r\rdata: c\r", b"data: a\r\rdata: b\r\r"),
            ("CR LF", b"data: a\r\n\r\ndata: b\r\n\r\ndata: c\r\n", b"data: a\r\n\r\ndata: b\r\n\r\n"),
            ("a CR at the end", b"data: a\r\n\r\ndata: b\r\n\r", b"data: a\r\n\r\ndata: b\r\n\r"),
            ("one of two lines of data", b"data: a\n\ndata: b\n\nevent: x\ndata: c\n", b"data: a\n\ndata: b\n\n"),
            ("a comment within an event", b"data: a\n\ndata: b\n\ndata: c\n: comment\n", b"data: a\n\ndata: b\n\n")):
        r = Asked([text], least=len(sent), how=how).let("dies").rest()
        check(f"{what}, {how}: whole events, and then one that says why", (200, True, ["a", "b"], 3), (r.status, r.whole, r.events[:2], len(r.events)))
        check(f"{what}, {how}: why", True, why in r.error())
        check(f"{what}, {how}: nothing of the event that is not whole", True, r.body.startswith(sent + b'\n\ndata: {"error"'))
    # What is longer than is held is passed on as it comes. There is no event that says why: it would make the half one whole.
    r = Asked([b"data: a\n\ndata: " + b"x" * 70000 + b"\n", b"data: y"], least=70000, how=how).let(1).let("dies").rest()
    check(f"half an event that is too long, {how}", (200, False, ["a"]), (r.status, r.whole, r.events))
    r = Asked([b"data: " + b"x" * 70000 + b"\n", b"data: y\n\ndata: z"], least=70000, how=how).let(1)
    r.body += r.response.read(9)
    r.let("dies").rest()
    check(f"behind an event that is too long, {how}", (True, 2, 70002, True), (r.whole, len(r.events), len(r.events[0]), why in r.error()))

# ---- what is passed on, and when ----
r = Asked([b": alive\n", b"data: a\n\n:\r", b"data: b"], least=8)
check("a comment is there at once", b": alive\n", r.body)
r.let(1).body += r.response.read(11)
check("an event and a comment, too", b": alive\ndata: a\n\n:\r", r.body)
r.let(2).rest()
check("what is not whole is sent at the stream's end", (True, b": alive\ndata: a\n\n:\rdata: b"), (r.whole, r.body))
text = b"\xef\xbb\xbfid: 1\r\ndata: a\r\n\r\n\n\ndata: b\rdata: c\r\r: end"
for cut in range(1, len(text)):
    r = Asked([text[:cut], text[cut:]]).let(1).rest()
    check(f"every byte is passed on, cut at {cut}", (True, text), (r.whole, r.body))

# ---- answers that are encoded ----
packed = gzip.compress(b"data: a\n\ndata: b\n\n" * 100, mtime=0)
half = len(packed) // 2
for kind in (STREAM, JSON):
    name = kind["Content-Type"]
    r = Asked([packed[:half], packed[half:]], {**kind, **GZIP}, half).let(1).rest()
    check(f"{name} that an engine encodes", (200, True, packed, "gzip", name), (r.status, r.whole, r.body, r.headers.get("content-encoding"), r.headers.get("content-type")))
    for how in ("cut", "dies"):
        r = Asked([packed[:half]], {**kind, **GZIP}, half, how=how).let("dies").rest()
        check(f"{name} that is encoded and broken off, {how}", (200, False, packed[:half]), (r.status, r.whole, r.body))
r = Asked([b"data: a\n\ndata: b"], {**STREAM, "Content-Encoding": "identity"}, 9, how="cut").rest()
check("identity is no encoding", (True, True), (r.whole, LIVES in r.error()))


def accepted(method, path, body=None, **headers):
    """What the engine is told of encodings."""
    return {k.lower(): v for k, v in d.ask(method, path, body, headers).json["headers"].items()}.get("accept-encoding")


GZIP_ONLY = {"Accept-Encoding": "gzip"}
check("what a model answers is not to be encoded", ["identity"] * 2, [accepted("POST", "/v1/chat/completions", {"model": "a"}, **more) for more in (GZIP_ONLY, {})])
check("nor is it where the path names the model", "identity", accepted("POST", "/upstream/a/v1/chat/completions", {"model": "a"}, **GZIP_ONLY))
check("nor what the worker asks for by itself", "identity", accepted("GET", "/props?model=a", **GZIP_ONLY))
check("an engine's own pages are as the client wants them", "gzip", accepted("GET", "/upstream/a/index.html", **GZIP_ONLY))

# ---- answers that do not go on with the head that is ours ----
def load(headers, status=200, pieces=(b"data: a\n\n",), **more):
    """A stream that began with the state of loading."""
    d.ask("POST", "/api/models/unload/slow")
    until("it is unloaded", lambda: "slow" not in d.running())
    r = Asked(pieces, headers, model="slow", status=status, **more).let(1).rest()
    check("the state of loading", True, "slow: " in r.body.decode("latin-1"))
    return r


r = load(STREAM)
check("a stream goes on", (True, "a"), (r.whole, r.events[-1]))
r = load({})
check("so does what says nothing of its type", (True, "a"), (r.whole, r.events[-1]))
# A byte order mark means something at the beginning of a stream alone, and there our events stand.
MARK = b"\xef\xbb\xbf"
for cut in (0, 1, 2, 3, 4):
    text = MARK + b"data: a\n\ndata: b\n\n"
    r = load(STREAM, pieces=[p for p in (text[:cut], text[cut:]) if p])
    check(f"a byte order mark, cut at {cut}", (True, ["a", "b"], False), (r.whole, r.events[-2:], MARK in r.body))
r = load(STREAM, pieces=[MARK[:2], b"data: a\n\ndata: b\n\n"])
check("what only begins so is passed on", (True, True, "b"), (r.whole, MARK[:2] + b"data: a\n\n" in r.body, r.events[-1]))
r = load(STREAM, pieces=[b"data: a\n\n" + MARK + b"data: b\n\n"])
check("so it is later in the stream", (True, True, "a"), (r.whole, MARK + b"data: b\n\n" in r.body, r.events[-1]))
for headers, status, why in (
        ({**STREAM, **GZIP}, 200, "the engine answered with Content-Encoding: gzip"),
        (JSON, 200, "the engine answered with Content-Type: application/json"),
        ({"Content-Type": ""}, 200, "the engine answered with an empty Content-Type"),
        ({"Content-Type": "text/html\xe9"}, 200, "the engine answered with Content-Type: text/html?"),
        (STREAM, 400, "the engine answered with 400")):
    for how in (None, "cut"):
        r = load(headers, status, how=how)
        check(f"{why}, {how}", (200, True, f"model slow: {why}", False), (r.status, r.whole, r.error(), "a" in r.events))
# The engine may take its time: the client is told at once, and the engine that nobody waits.
r = load(JSON, pieces=(b"{", b"}"), after="/nonexistent/")
check("told at once", (True, "model slow: the engine answered with Content-Type: application/json"), (r.whole, r.error()))
# ---- heads that others would read in another way ----
for head, why in (("HTTP/1.1 200 OK\rX-A: b\r\nContent-Length: 2\r\n\r\n{}", "a CR without LF stands in the status line or in a header"),
                  ("HTTP/1.1 200 OK\r\nX-A: b\rContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "a CR without LF stands in the status line or in a header"),
                  ("HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}", "a header goes on in a further line")):
    r = Asked([], head=head).rest()
    check(f"{head!r}", (502, True), (r.status, why in json.loads(r.body)["error"]["message"]))
r = Asked([], head="HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 2\n\n{}").rest()
check("lines that end with LF alone", (200, b"{}"), (r.status, r.body))
until("no request is left", lambda: all(m["running"] == 0 for m in d.tell("models")["models"]))
check("the exit code", 0, d.stop())
finish()
