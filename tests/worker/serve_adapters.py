# SPDX-License-Identifier: Apache-2.0
"""llama-engine --serve with LoRA adapters: serve_adapters.py FOLDER. Tokens are those of the engine offline."""
import json
import os
import random
import signal
import socket
import sys
import threading

from adapters import ADAPTERS, SLOTS, load, make, make_all, offline_with, unload, write_shape
from daemon import check, finish, until
from reference import Engine, Reply, prompt_of

folder = sys.argv[1]
SHAPE = write_shape(folder)
MODEL = ["--recipe", SHAPE, "--seed", "7", "--max-context", "256"]
COUNT, TOKENS = 4, 40
PROMPTS = [prompt_of(i, 7, 300) for i in range(COUNT)]
LONG = [(i * 37 + 5) % 300 for i in range(100)]
paths = make_all(SHAPE, folder)
want = {name: offline_with(folder, MODEL, COUNT, TOKENS, path) for name, path in paths.items()}
want["m"] = offline_with(folder, MODEL, COUNT, TOKENS, None)
check("adapters change the tokens", len(want), len({str(tokens) for tokens in want.values()}))


def together(engine, names, times=1):
    """Each prompt with each model, all at once."""
    asked = [(name, i) for _ in range(times) for name in names for i in range(COUNT)]
    got = [None] * len(asked)

    def one(number):
        name, i = asked[number]
        got[number] = engine.tokens(PROMPTS[i], TOKENS, model=name)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: [got[n] for n in range(len(asked)) if asked[n][0] == name][:COUNT] for name in names} if times == 1 else \
        [asked[n] for n in range(len(asked)) if got[n] != want[asked[n][0]][asked[n][1]]]


def serve(name, *options, **more):
    return Engine(f"{folder}/{name}", *MODEL, "--batches", "1,2,4,8", "--served-name", "m", *options, **more)


def stream_tokens(response):
    return [t for v in Reply(response).events for c in v["choices"] for t in c["token_ids"]]


# ---- an engine without slots ----
e = serve("none")
check("no slots, no adapters", 404, load(e, "one", paths["one"])[0])
check("nothing of adapters in the metrics", [], [key for key in e.metrics() if "lora" in key])
check("the exit code", 0, e.stop())

# ---- the API ----
e = serve("api", *SLOTS)
check("loaded", (200, "Success: LoRA adapter 'one' added successfully."), load(e, "one", paths["one"]))
check("loaded twice", (400, "The lora adapter 'one' has already been loaded. To load it anew, set 'load_inplace' to true."), load(e, "one", paths["one"]))
check("loaded in place", 200, load(e, "one", paths["one"], load_inplace=True)[0])
check("not loaded in place", 400, load(e, "one", paths["one"], load_inplace=False)[0])
check("unknown", (404, "The lora adapter 'two' cannot be found."), unload(e, "two"))
for body in ({}, {"lora_name": "x"}, {"lora_path": "x"}, {"lora_name": "", "lora_path": "x"}, {"lora_name": 3, "lora_path": "x"}, {"lora_name": "x", "lora_path": []},
             {"lora_name": "x", "lora_path": "x", "load_inplace": 1}, [], "{", '{"lora_name": "a\\u0000b", "lora_path": "x"}', b'{"lora_name": "\xff", "lora_path": "x"}'):
    check(f"a wrong body: {body}", 400, e.ask("POST", "/v1/load_lora_adapter", body).status)
    check(f"a wrong body: {body}", 400 if not isinstance(body, dict) or not body.get("lora_name") or body["lora_name"] == 3 else 404, e.ask("POST", "/v1/unload_lora_adapter", body).status)
for name, why in {"m": "is that of the base model", "a\nb": "has a control character", "a\x7fb": "has a control character", "x" * 257: "has more than 256 bytes",
                  "\u00e9" * 129: "has more than 256 bytes"}.items():
    check(f"the name {name[:9]!r}", (400, f"lora_name: the name {why}"), load(e, name, paths["one"]))
for name in ("x" * 256, "a b", "org/name:tag", "\u00e9\u4f60", '"quoted\\', "a,b"):
    check(f"the name {name[:9]!r} is one", 200, load(e, name, paths["some"])[0])
    check(f"the name {name[:9]!r} answers", want["some"][0], e.tokens(PROMPTS[0], TOKENS, model=name))
    check("its metrics are read", True, e.metrics()["medusa_engine_lora_names"] >= 2)
    check(f"the name {name[:9]!r} goes", 200, unload(e, name)[0])
for path in ("x" * 4096, f"{folder}/nowhere\u0001"):
    check(f"the path {path[:9]}", 400, load(e, "x", path)[0])
check("no file", 404, load(e, "x", f"{folder}/nowhere")[0])
check("the error's type", "NotFoundError", e.ask("POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": f"{folder}/nowhere"}).json["error"]["type"])
models = e.get("/v1/models").json["data"]
check("models", [("m", None, "m"), ("one", "m", paths["one"])], [(m["id"], m["parent"], m["root"]) for m in models])
whole = e.complete(PROMPTS[0], max_tokens=TOKENS, model="one").json
check("a reply names the adapter", "one", whole["model"])
check("its tokens", want["one"][0], whole["choices"][0]["token_ids"])
check("usage", (len(PROMPTS[0]), TOKENS), (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]))
check("the base by its name, and without", [want["m"][0]] * 2, [e.tokens(PROMPTS[0], TOKENS, model="m"), e.tokens(PROMPTS[0], TOKENS)])
check("an unknown model", 404, e.complete("a", model="two").status)
check("an unknown model with a long name", "NotFoundError", e.complete("a", model="\u00e9" * 51 + "x").json["error"]["type"])
check("an unknown model with a longer name", "NotFoundError", e.complete("a", model="x" + "\u00e9" * 51).json["error"]["type"])
check("unloaded", (200, "Success: LoRA adapter 'one' removed successfully."), unload(e, "one"))
check("unloaded twice", 404, unload(e, "one")[0])
check("gone", 404, e.complete("a", model="one").status)
check("gone from the list", ["m"], [m["id"] for m in e.get("/v1/models").json["data"]])
check("its memory is free", 0.0, e.metrics()["medusa_engine_lora_host_bytes"])

# ---- a mixed batch ----
for name, path in paths.items():
    check(f"{name} is loaded", 200, load(e, name, path)[0])
copies = e.metrics()["medusa_engine_lora_slot_copies_total"]
for turn in range(2):
    got = together(e, want)
    for name in want:
        check(f"{name} among all others, time {turn + 1}", want[name], got[name])
m = e.metrics()
check("graphs are used", m["medusa_engine_decode_steps_total"], m["medusa_engine_graph_launches_total"])
check("each came into a slot once", copies + 6, m["medusa_engine_lora_slot_copies_total"])
check("none is in use", 0.0, m["medusa_engine_lora_slots_used"])

# ---- prefixes belong to an adapter, and to its version ----
cached = lambda name: e.complete(LONG, max_tokens=1, model=name).json["usage"]["prompt_tokens_details"]["cached_tokens"]
check("nobody has computed it", [0, 0, 0], [cached(name) for name in ("m", "one", "eight")])
check("each has its own", [96, 96, 96], [cached(name) for name in ("m", "one", "eight")])
old, response = e.stream(PROMPTS[0], TOKENS, model="one")
check("in place, with other weights", 200, load(e, "one", paths["wide"], load_inplace=True)[0])
check("who runs goes on with the old ones", want["one"][0], stream_tokens(response))
check("other weights, another prefix", [0, 96, 96], [cached(name) for name in ("one", "m", "eight")])
check("the new tokens", want["wide"], [e.tokens(prompt, TOKENS, model="one") for prompt in PROMPTS])
check("back", 200, load(e, "one", paths["one"], load_inplace=True)[0])

# ---- unloaded while in use ----
full = e.tokens(PROMPTS[0], 240, model="full")
bytes_before = e.metrics()["medusa_engine_lora_host_bytes"]
connection, response = e.stream(PROMPTS[0], 240, model="full")
response.read(10)
check("unloaded while in use", 200, unload(e, "full")[0])
check("new requests are refused", 404, e.complete("a", model="full").status)
rest = response.read()
check("who runs goes on", True, rest.endswith(b"data: [DONE]\n\n"))
until("its memory is free", lambda: e.metrics()["medusa_engine_lora_host_bytes"] < bytes_before)
check("loaded again", 200, load(e, "full", paths["full"])[0])
check("the same tokens", full, e.tokens(PROMPTS[0], 240, model="full"))

# ---- what metrics say while some run ----
connection, response = e.stream(PROMPTS[0], 240, model="eight")
response.read(10)
page = e.get("/metrics").body.decode()
check("vLLM's names", True, 'vllm:lora_requests_info{max_lora="6",running_lora_adapters="' in page)
check("who runs, or has ended by now", True, 'running_lora_adapters="eight",waiting_lora_adapters=""' in page or 'running_lora_adapters="",waiting' in page)

# ---- the end ----
e.process.send_signal(signal.SIGTERM)
check("a stream is finished after SIGTERM", True, response.read().endswith(b"data: [DONE]\n\n"))
check("the exit code", 0, e.process.wait(60))

# ---- more adapters than slots ----
e = serve("few", "--lora-slots", "2", "--max-lora-rank", "64", *[word for name, path in paths.items() for word in ("--lora", f"{name}={path}")])
for turn in range(2):
    check(f"six adapters in two slots, time {turn + 1}", [], together(e, want, times=2))
check("they made way for each other", True, e.metrics()["medusa_engine_lora_slot_evictions_total"] > 4)
check("no slot is in use", 0.0, e.metrics()["medusa_engine_lora_slots_used"])

# ---- two adapters that are always asked for do not keep a third one out ----
done, failed = threading.Event(), []


def ask_always(name):
    while not done.is_set():
        if e.tokens(PROMPTS[1], TOKENS, model=name) != want[name][1]:
            failed.append(name)


crowd = [threading.Thread(target=ask_always, args=(name,)) for name in ("one", "eight") * 4]
for thread in crowd:
    thread.start()
check("a third one gets its turn", want["full"][0], e.tokens(PROMPTS[0], TOKENS, model="full"))
check("so do the others", [want[name][0] for name in ("some", "feed", "m")], [e.tokens(PROMPTS[0], TOKENS, model=name) for name in ("some", "feed", "m")])
done.set()
for thread in crowd:
    thread.join()
check("nobody got other tokens", [], failed)
check("the exit code", 0, e.stop())

# ---- a client that does not read keeps no slot ----
e = Engine(f"{folder}/slow", "--recipe", SHAPE, "--seed", "7", "--max-context", "8192", "--batches", "1,2", "--lora-slots", "1", "--max-lora-rank", "64",
           "--served-name", "m", listen=f"unix:{folder}/socket")
for name in ("one", "eight"):
    load(e, name, paths[name])
connection, response = e.stream("Hello", 6000, model="one")
made = lambda: e.metrics()["vllm:generation_tokens_total"]
until("no token is made for it", lambda: made() == (e.tokens("x", 1), made())[1] - 1)
check("another adapter gets the slot", 3, len(e.tokens("x", 3, model="eight")))
check("it was not forgotten", 6000, len(stream_tokens(response)))
check("the exit code", 0, e.stop())

# ---- who waits for a slot, and goes; who waits at the end ----
e = serve("waits", "--lora-slots", "1", "--max-lora-rank", "64", *[word for name, path in paths.items() for word in ("--lora", f"{name}={path}")])
waiting = lambda: e.metrics()["vllm:num_requests_waiting"]
long_one = e.tokens(PROMPTS[0], 240, model="one")
for turn in range(3):
    connection, response = e.stream(PROMPTS[0], 240, model="one")
    gone = e.connect()
    gone.request("POST", "/v1/completions", json.dumps({"prompt": PROMPTS[0], "max_tokens": 40, "model": "eight"}))
    gone.sock.shutdown(socket.SHUT_RDWR)
    gone.close()
    check(f"who runs is not disturbed ({turn})", long_one, stream_tokens(response))
    until("nobody waits", lambda: waiting() == 0)
    check(f"the slot is not kept for who has gone ({turn})", want["some"][0], e.tokens(PROMPTS[0], TOKENS, model="some"))
last = {}
connection, response = e.stream(PROMPTS[0], 240, model="one")
asks = [threading.Thread(target=lambda name=name: last.update({name: e.tokens(PROMPTS[0], TOKENS, model=name)})) for name in ("eight", "full", "m")]
before = e.metrics()["vllm:prompt_tokens_total"]
for ask in asks:
    ask.start()
until("they have come", lambda: e.metrics()["vllm:prompt_tokens_total"] == before + 3 * len(PROMPTS[0]))
e.process.send_signal(signal.SIGTERM)
for ask in asks:
    ask.join()
check("SIGTERM waits for those who wait", {name: want[name][0] for name in last}, last)
check("and for who runs", long_one, stream_tokens(response))
check("the exit code", 0, e.process.wait(60))

# ---- host memory has a limit ----
size = {name: sum(os.path.getsize(f"{path}/{file}") for file in os.listdir(path)) for name, path in paths.items()}
e = serve("bytes", *SLOTS, "--lora-bytes", str(size["full"] // 2 + 20000), "--lora", f"one={paths['one']}")
for name in ("eight", "full", "some", "wide", "feed"):
    check(f"{name} is loaded", 200, load(e, name, paths[name])[0])
m = e.metrics()
check("some were forgotten", True, m["medusa_engine_lora_host_evictions_total"] > 0)
check("the limit holds", True, m["medusa_engine_lora_host_bytes"] <= m["medusa_engine_lora_host_bytes_limit"])
check("all are listed", 7, len(e.get("/v1/models").json["data"]))
for name in ("full", "eight", "wide", "some", "one", "feed", "full"):
    check(f"{name}, read again where it was forgotten", want[name], [e.tokens(prompt, TOKENS, model=name) for prompt in PROMPTS])
small = serve("small", *SLOTS, "--lora-bytes", "2000")
check("too large for it", 400, load(small, "x", paths["full"])[0])
check("and it goes on", want["m"][0], small.tokens(PROMPTS[0], TOKENS))
check("the exit code", 0, small.stop())

# ---- a file that changed, was cut or went meanwhile ----
victim = make(SHAPE, f"{folder}/victim", list(paths).index("wide"), *ADAPTERS["wide"])
check("loaded", 200, load(e, "victim", victim)[0])
check("its tokens", want["wide"], [e.tokens(prompt, TOKENS, model="victim") for prompt in PROMPTS])
check("full is asked for, and victim forgotten", want["full"][0], e.tokens(PROMPTS[0], TOKENS, model="full"))
whole_file = open(f"{victim}/adapter_model.safetensors", "rb").read()
os.truncate(f"{victim}/adapter_model.safetensors", len(whole_file) // 2)
reply = e.complete("a", model="victim")
check("a file that was cut", (500, True), (reply.status, "can't be read again" in reply.json["error"]["message"]))
check("others are answered", want["m"][0], e.tokens(PROMPTS[0], TOKENS))
with open(f"{victim}/adapter_model.safetensors", "wb") as file:
    file.write(whole_file)
check("the file is back", want["wide"][0], e.tokens(PROMPTS[0], TOKENS, model="victim"))
check("the exit code", 0, e.stop())

# ---- hostile paths ----
e = serve("hostile", *SLOTS)
check("whole", 200, load(e, "whole", victim)[0])
os.mkfifo(f"{folder}/fifo")
os.mkdir(f"{folder}/empty")
for path in ("/dev/zero", "/dev/null", f"{folder}/fifo", f"{folder}/empty", "/proc/self/mem", "/", SHAPE, "/dev/stdin", "../" * 50):
    check(f"the path {path}", 400, load(e, "x", path)[0])
for cut in (0, 1, 7, 8, 9, 100, len(whole_file) // 2, len(whole_file) - 1):
    with open(f"{victim}/adapter_model.safetensors", "wb") as file:
        file.write(whole_file[:cut])
    check(f"cut to {cut} bytes", 400, load(e, "cut", victim)[0])
    check(f"cut to {cut} bytes, in place", 400, load(e, "whole", victim, load_inplace=True)[0])
check("what is loaded stays", want["wide"][0], e.tokens(PROMPTS[0], TOKENS, model="whole"))
with open(f"{victim}/adapter_model.safetensors", "wb") as file:
    file.write(whole_file)
low = serve("low", "--lora-slots", "1", "--max-lora-rank", "8")
check("a higher rank", 400, load(low, "x", paths["wide"])[0])
check("the exit code", 0, low.stop())

# ---- a storm of loads, unloads and requests ----
def storm(engine, seed, refusals, wrong):
    rng = random.Random(seed)
    for _ in range(20):
        name = rng.choice(list(paths))
        what = rng.randrange(4)
        if what == 0:
            said = load(engine, name, paths[name], load_inplace=rng.random() < 0.5)
            good = said[0] in (200, 400, 429)
        elif what == 1:
            said = unload(engine, name)
            good = said[0] in (200, 404)
        else:
            i = rng.randrange(COUNT)
            said = engine.tokens(PROMPTS[i], TOKENS, model=name)
            good = said == want[name][i] or (isinstance(said, tuple) and said[0] in refusals)
        if not good:
            wrong.append((name, what, said))


def storms(engine, refusals):
    wrong = []
    threads = [threading.Thread(target=storm, args=(engine, seed, refusals, wrong)) for seed in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for name in [*paths, "whole"]:
        unload(engine, name)
    until("nothing is left of the storm", lambda: engine.metrics()["medusa_engine_lora_host_bytes"] == 0 and engine.metrics()["medusa_engine_lora_slots_used"] == 0)
    return wrong


check("nothing was answered wrong in the storm", [], storms(e, (404,)))
check("the exit code", 0, e.stop())
# Where they do not all fit: read again all the time, in two slots. What is in use may leave no room: 503.
e = serve("tight", "--lora-slots", "2", "--max-lora-rank", "64", "--lora-bytes", str(size["full"] // 2 + 100000))
check("nothing was answered wrong in the storm without room", [], storms(e, (404, 503)))
check("the exit code", 0, e.stop())

# ---- the device fails while an adapter comes into its slot ----
e = serve("fails", *SLOTS, "--lora", f"one={paths['one']}", env={"HOSTCUDA_FAULT": "cuMemcpyHtoDAsync_v2:60:ILLEGAL_ADDRESS"})
check("an answer that can't be given", 500, e.complete("Hello", model="one", max_tokens=100).status)
check("the exit code of a failure", 1, e.process.wait(60))
check("its reason", True, "cuMemcpyHtoDAsync" in e.stderr())

# ---- the command line ----
for options, why in ((["--lora-slots", "1", "--lora", "one"], "NAME=PATH is wanted"), (["--lora-slots", "1", "--lora", f"m={paths['one']}"], "is that of the base model"),
                     (["--lora-slots", "1", "--lora", "x=/nowhere"], "/nowhere"),
                     (["--lora-slots", "1", "--lora", f"x={paths['one']}", "--lora", f"x={paths['eight']}"], "the name is that of another adapter"), (["--lora", f"one={paths['one']}"], "--lora: an adapter needs a place")):
    try:
        serve("refused", *options).stop()
        check(f"{options} is refused", True, False)
    except (RuntimeError, ConnectionError) as error:
        said = open(f"{folder}/refused/err", encoding="utf-8").read()
        check(f"{options[-1]} is refused", True, why in said)
finish()
