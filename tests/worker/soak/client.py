# SPDX-License-Identifier: Apache-2.0
"""A request of a soak, and the judgement on what came of it: each ends once, with the right answer or with a reason."""
import json
import socket
import struct
import time

from answers import Answer
from soak import plan
from soak.computed import Computed

BOUND = 120 # seconds in which each request has ended, on the slowest machine; the daemon's own limits are 20 s
LONG = 65536 # bytes of JSON that the daemon holds back, so that an answer that breaks off can be taken back

# What a request may be refused with, whatever happens around it.
REASONS = {(429, "concurrency_limit"), (429, "queue_full"), (502, "engine_failed"), (502, "bad_gateway"), (503, "draining"), (503, "overloaded"),
           (503, "too_many_connections"), (504, "waited_too_long"), (504, "deadline")}


FAILED = "the engine's own failure" # a request that ended with it


class Said:
    """The answer of engine.py to a request, or of an adapter in it."""
    nothing = ""

    def __init__(self, request, asked):
        self.made = Answer(request["model"], asked)
        self.tokens = self.made.tokens

    def content(self, choice):
        return choice["delta"].get("content", "")

    def begins_with(self, got):
        return self.made.text().startswith(got)

    def is_all(self, got):
        return self.made.text() == got

    def is_whole(self, answer):
        return answer == self.made.whole()


class Broken(Exception):
    """The connection ended before the answer had."""


class Wrong(Exception):
    """What must never happen."""


class Wire:
    """A connection with one request on it."""

    def __init__(self, port, small=False):
        self.end, self.data = time.monotonic() + BOUND, b""
        self.wire = socket.socket()
        if small:
            self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.wire.settimeout(BOUND)
        self.slow = 0 # seconds before each read
        try:
            self.wire.connect(("127.0.0.1", port))
        except OSError as error:
            self.wire.close()
            raise Broken(str(error)) from None

    def say(self, data):
        try:
            self.wire.sendall(data)
        except TimeoutError:
            raise Wrong(f"nothing was read for {BOUND} s") from None
        except OSError: # an answer may be there all the same
            pass

    def more(self):
        time.sleep(self.slow)
        left = self.end - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self.wire.settimeout(left)
            piece = self.wire.recv(4096 if self.slow else 65536)
        except TimeoutError:
            raise Wrong(f"no end within {BOUND} s") from None
        except OSError as error:
            raise Broken(str(error)) from None
        if not piece:
            raise Broken("closed")
        self.data += piece

    def line(self):
        while b"\r\n" not in self.data:
            self.more()
        line, self.data = self.data.split(b"\r\n", 1)
        return line.decode("latin-1")

    def take(self, size):
        while len(self.data) < size:
            self.more()
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def head(self):
        """(status, headers); what says only that there is more to come is left out."""
        while True:
            words = self.line().split(" ", 2)
            headers = {}
            while line := self.line():
                name, value = line.split(":", 1)
                headers[name.lower()] = value.strip()
            if len(words) < 2 or words[0] != "HTTP/1.1" or not words[1].isdigit():
                raise Wrong(f"no head of an answer: {words}")
            if words[1] != "100":
                return int(words[1]), headers

    def pieces(self, headers):
        """The body, as it comes."""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.line().split(";")[0], 16):
                yield self.take(size)
                self.take(2)
            self.line()
        else:
            left = int(headers["content-length"])
            while left:
                if not self.data:
                    self.more()
                piece = self.take(min(left, len(self.data)))
                left -= len(piece)
                yield piece

    def vanish(self):
        self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.wire.close()


def body_of(request):
    """(the body, what the client asks)."""
    kind = request["kind"]
    stream = kind in ("stream", "slow reader", "stalled reader", "left within") or (kind in ("long answer", "half closed", "engine dies", "left at once") and request["stream"])
    if request["model"] in plan.COMPUTED:
        asked = {"model": "nobody" if kind == "unknown model" else request["model"], **Computed(request).asked(stream)}
        text = json.dumps(asked).encode()
        return (text[:-1] + b",}" if kind == "no JSON" else text), asked
    pad = {"long answer": 20000, "slow reader": 20000, "stalled reader": 150000}.get(kind, 0)
    asked = {"model": "nobody" if kind == "unknown model" else request["model"], "prove": request["name"], "id": request["name"], "stream": stream, "max_tokens": request["tokens"],
             "until_close": request["until_close"], "token": request["token"], "wait": request["wait"], "pad": pad, "prompt": request["name"] + "p" * request["prompt"]}
    if kind == "engine dies":
        asked["die_at" if stream else "die_half" if request["until_close"] else "die"] = request["tokens"] // 2 if stream else True
    text = json.dumps(asked).encode()
    return (text[:-1] + b",}" if kind == "no JSON" else text), asked


def answer_to(request):
    return Computed(request) if request["model"] in plan.COMPUTED else Said(request, body_of(request)[1])


def head_of(request, size):
    key = "" if request["kind"] == "without a key" else f"X-Api-Key: {request['key']}\r\n"
    if request["kind"] == "page":
        return f"GET {request['page']} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}\r\n".encode()
    path = "/v1/completions" if request["model"] in plan.COMPUTED else "/v1/chat/completions"
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}Content-Length: {size}\r\n\r\n".encode()


def refusal(status, body):
    """The code of an error in OpenAI's form; Wrong if it is none."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        raise Wrong(f"{status} without a reason: {body[:300]}") from None
    if not error.get("message") or not error.get("code"):
        raise Wrong(f"{status} without a reason: {error}")
    return error["code"], error["message"]


def is_own_failure(request, error):
    """llama-engine says so when its device fails, and ends; the worker passes it on as its answer."""
    return request["model"] in plan.COMPUTED and error.get("type") == "server_error" and error.get("message") == "the engine failed before the answer was whole"


def judge_stream(request, text, made):
    """served, or refused within; the pieces before that are right."""
    got, done = made.nothing, False
    for event in text.split("\n\n"):
        line = event.strip("\n")
        if not line or line.startswith(":"):
            continue
        if done or not line.startswith("data: "):
            raise Wrong(f"within a stream: {line[:200]!r}{' after its end' if done else ''}")
        if line == "data: [DONE]":
            done = True
            continue
        value = json.loads(line[6:])
        if "error" in value and is_own_failure(request, value["error"]) and made.begins_with(got):
            return FAILED, ""
        if "error" in value:
            code, message = refusal(0, line[6:])
            if not made.begins_with(got):
                raise Wrong(f"wrong pieces before the error {code}: {got[:200]}")
            return f"broken off: {code}", message
        for choice in value["choices"]:
            got = got + made.content(choice)
    if not done:
        raise Broken("the stream has no end")
    if not made.is_all(got):
        raise Wrong(f"a wrong answer: {got[:200]!r}")
    return "served", ""


def judge(request, asked, status, headers, body):
    """(outcome, what is said of it)."""
    kind, made = request["kind"], answer_to(request)
    if kind == "page":
        if status == 200 or (status == 503 and request["page"] == "/health"):
            return "page", ""
        raise Wrong(f"{request['page']}: {status} {body[:200]}")
    if status == 200:
        if kind in ("without a key", "unknown model", "no JSON"):
            raise Wrong(f"it was served: {body[:200]}")
        if asked["stream"]:
            return judge_stream(request, body.decode(), made)
        if not made.is_whole(json.loads(body)):
            raise Wrong(f"a wrong answer: {body[:300]}")
        if "die" in asked or "die_half" in asked:
            raise Wrong("an engine that dies cannot have said so")
        return "served", ""
    if status == 500 and is_own_failure(request, json.loads(body)["error"]):
        return FAILED, ""
    code, message = refusal(status, body)
    planned = {"without a key": (401, "unauthorized"), "unknown model": (404, "model_not_found"), "no JSON": (400, "invalid_json")}.get(kind)
    sometimes = (404, "model_not_found") if request["model"] in plan.SOMETIMES else None
    if (status, code) not in {planned} | (set() if planned and kind == "without a key" else REASONS) | {sometimes}:
        raise Wrong(f"refused with {status} {code}: {message}")
    return f"refused: {code}", message


def leave(wire, request, data):
    """A client that goes before its answer is there."""
    wire.say(data if request["kind"] != "left within the body" else data[:len(data) // 2])
    if request["kind"] == "left within":
        try:
            status, headers = wire.head()
            if status == 200:
                next(wire.pieces(headers), b"")
        except Broken:
            pass
    if request["at"] < 0.5:
        wire.vanish()
    else:
        wire.wire.close()
    return "left within the body" if request["kind"] == "left within the body" else "left", ""


def ask(port, request):
    """(outcome, what is said of it). Raises Broken if the connection ends before the answer, Wrong for what must never happen."""
    kind = request["kind"]
    wire = Wire(port, small=kind in ("slow reader", "stalled reader"))
    try:
        body, asked = body_of(request)
        data = head_of(request, len(body)) + (b"" if kind == "page" else body)
        if kind.startswith("left"):
            return leave(wire, request, data)
        wire.say(data)
        if kind == "half closed":
            wire.wire.shutdown(socket.SHUT_WR)
        status, headers = wire.head()
        if kind == "slow reader":
            wire.slow = 0.02
        if kind == "stalled reader":
            time.sleep(3 + 4 * request["at"])
        got = b""
        try:
            for piece in wire.pieces(headers):
                got += piece
        except Broken:
            if kind == "stalled reader" or (kind == "long answer" and not asked["stream"] and len(got) > 0):
                return "cut off", ""
            raise
        return judge(request, asked, status, headers, got)
    except OSError as error:
        raise Broken(str(error)) from None
    finally:
        wire.wire.close()
