# SPDX-License-Identifier: Apache-2.0
"""Engines that are killed, unloaded and renewed by reloads, all at once and while they start: reload_storm.py FOLDER [SECONDS].

Each request ends, and whoever gets an answer gets that to his own question.
"""
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from answers import Answer
from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports

folder, seconds = f"{sys.argv[1]}/storm", float(sys.argv[2]) if len(sys.argv) > 2 else 10
port = free_ports(8)
over, wrong, statuses, lock = False, [], {}, threading.Lock()


def text(number):
    """g has another command each time; both don't fit together."""
    return f"""startPort: {port}
healthCheckTimeout: 30
unloadTimeout: 1
medusa: {{gpus: [{{memory: 10MB}}]}}
models:
  g: {{cmd: "{ENGINE} --name g{number} --start 0.1", medusa: {{memory: 6MB, swap: off}}}}
  h: {{cmd: "{ENGINE} --name h", medusa: {{memory: 6MB, swap: off}}}}
"""


def judge(asked, body):
    """Whether it is the answer to this, by any of the model's engines."""
    if asked["stream"]:
        events = [json.loads(line[6:]) for line in body.split("\n") if line.startswith("data: {")]
        if any("error" in event for event in events):
            return True  # it was broken off, and says so
        got = "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])
    else:
        got = json.loads(body)["choices"][0]["message"]["content"]
    names = ["h"] if asked["model"] == "h" else [f"g{i}" for i in range(reloads + 1)]
    return any(Answer(name, asked).text() == got for name in names)


def client(who):
    dice, number = random.Random(who), 0
    while not over:
        number += 1
        asked = {"model": dice.choice("gggh"), "prove": f"{who}.{number}", "prompt": f"{who}.{number}", "stream": dice.random() < 0.5,
                 "max_tokens": dice.randrange(1, 6), "wait": dice.choice((0, 0.05, 0.2))}
        connection = http.client.HTTPConnection("127.0.0.1", d.port, timeout=PATIENCE)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(asked))
            if dice.random() < 0.1:
                time.sleep(dice.random() * 0.2)
                continue
            response = connection.getresponse()
            body = response.read().decode()
            right = judge(asked, body) if response.status == 200 else json.loads(body)["error"]["message"]
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            response, body, right = None, repr(error), False
        finally:
            connection.close()
        with lock:
            statuses[response and response.status] = statuses.get(response and response.status, 0) + 1
            if not right:
                wrong.append(f"{asked['prove']}, {asked['model']}: {body[:200]}")


def kill_one(dice):
    found = subprocess.run(["pgrep", "-P", str(d.process.pid), "-f", "engine.py"], capture_output=True, text=True, check=False).stdout.split()
    try:
        os.kill(int(dice.choice(found or ["0"])) or d.process.pid, signal.SIGKILL if found else 0)
    except ProcessLookupError:
        pass


d, reloads = Daemon(folder, text(0)), 0
clients = [threading.Thread(target=client, args=(i,)) for i in range(8)]
for thread in clients:
    thread.start()
orders, dice, end = [], random.Random(1), time.monotonic() + seconds
while time.monotonic() < end and d.process.poll() is None:
    time.sleep(dice.random() * 0.3)
    what = dice.choice(("reload", "reload", "kill", "g", "h", "--all"))
    if what == "reload":
        reloads += 1
        with open(f"{folder}/config.yaml", "w", encoding="utf-8") as file:
            file.write(text(reloads))
        d.ctl("reload")
    elif what == "kill":
        kill_one(dice)
    else:
        orders.append(threading.Thread(target=d.ctl, args=("unload", what)))
        orders[-1].start()
over = True
for thread in clients + orders:
    thread.join()
check("each has the answer to its own question, or a reason", [], wrong)
check("some were served", True, statuses.get(200, 0) > 10)
check("nothing else was told", {200, 404, 429, 502, 503} | set(statuses), {200, 404, 429, 502, 503})
check("the daemon lives", None, d.process.poll())
check("the exit code", 0, d.stop())
finish()
