# SPDX-License-Identifier: Apache-2.0
"""The reference engine as a server (llama-engine --serve), and what it says without one, for tests."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading

from daemon import PATIENCE, Reply

ENGINE = os.path.join(os.environ["MEDUSA_BUILD"], "models/llama/llama-engine")
MASK = (1 << 64) - 1


def prompt_of(number, seed, vocabulary):
    """The tokens of a recipe's prompt, as llama-engine draws them."""
    state, tokens = (seed * 0x9E3779B97F4A7C15 + number + 1) & MASK, []
    for k in range(4 + number % 8):
        state = ((state ^ state >> 29) * 0xBF58476D1CE4E5B9 + k) & MASK
        tokens.append((state >> 20) % vocabulary)
    return tokens


def offline(folder, options, prompts, tokens, *more):
    """The outputs of so many random prompts, which decode together."""
    report = f"{folder}/offline.json"
    words = [ENGINE, *options, *more, "--tokens", str(tokens), "--quiet", "--report", report]
    for _ in range(prompts):
        words += ["--prompt", "x"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE * 5)
    with open(report, encoding="utf-8") as file:
        return [sequence["tokens"] for sequence in json.load(file)["sequences"]]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


class Engine:
    """llama-engine --serve, also behind another command; ready when it is made, if `wait`."""

    def __init__(self, folder, *options, before=(), listen="127.0.0.1:0", env=None, wait=True):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.listen = folder, listen
        with open(f"{folder}/err", "ab") as err:
            self.process = subprocess.Popen([*before, ENGINE, *options, "--serve", listen], stdout=subprocess.PIPE, stderr=err,
                                            text=True, env={**os.environ, **(env or {})})
        line = ""
        while "listening on " not in line:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"{folder}: the engine ended: {self.stderr()}")
        found = re.search(r":(\d+)$", line.strip())
        self.port = int(found.group(1)) if found else 0
        self.first_health = self.get("/health").status
        while wait and self.get("/health").status != 200:
            if self.process.poll() is not None:
                raise RuntimeError(f"{folder}: the engine ended: {self.stderr()}")

    def stderr(self):
        with open(f"{self.folder}/err", encoding="utf-8") as file:
            return file.read()

    def connect(self):
        if self.port:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        return UnixConnection(self.listen[5:])

    def ask(self, method, path, body=None):
        connection = self.connect()
        try:
            connection.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body)
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path):
        return self.ask("GET", path)

    def complete(self, prompt, **more):
        return self.ask("POST", "/v1/completions", {"prompt": prompt, "return_token_ids": True, **more})

    def tokens(self, prompt, count, **more):
        """What it makes of a prompt; the reply where that is no answer."""
        reply = self.complete(prompt, max_tokens=count, **more)
        return reply.json["choices"][0]["token_ids"] if reply.status == 200 else (reply.status, reply.body)

    def at_once(self, prompts, count, **more):
        """The same for many prompts together."""
        got = [None] * len(prompts)

        def one(i):
            got[i] = self.tokens(prompts[i], count, **more)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return got

    def stream(self, prompt, count, **more):
        """An answer that has begun: connection and response."""
        connection = self.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": prompt, "max_tokens": count, "stream": True, "return_token_ids": True, **more}))
        return connection, connection.getresponse()

    def metrics(self):
        pairs = [line.rsplit(" ", 1) for line in self.get("/metrics").body.decode().split("\n") if line and line[0] != "#"]
        return {re.sub(r'\{model_name="[^"]*",?', "{", name).replace("{}", ""): float(value) for name, value in pairs}

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)
