# SPDX-License-Identifier: Apache-2.0
"""llama-engine --serve answers OpenAI's requests: serve_reference.py FOLDER. Tokens are those of the engine offline."""
import json
import signal
import socket
import sys
import threading

from daemon import check, finish, until
from reference import Engine, Reply, offline, prompt_of

folder = sys.argv[1]
# A shape whose down projection the matrix library splits for some numbers of rows and not for others.
with open(f"{folder}/split.yaml", "w", encoding="utf-8") as recipe:
    recipe.write("hidden_size: 64\nintermediate_size: 1152\nlayers: 2\nheads: 4\nkv_heads: 2\nhead_dim: 16\nvocabulary: 300\n"
                 "max_context: 16384\nrope_theta: 10000\nrope_interleaved: false\nrms_epsilon: 1e-5\ntie_embeddings: false\n"
                 "block_size: 16\nscale: 0.2\n")
MODEL = ["--recipe", f"{folder}/split.yaml", "--seed", "7"]
PROMPTS = [prompt_of(i, 7, 300) for i in range(12)]
LONG = [(i * 37 + 5) % 300 for i in range(100)]


def code(reply):
    return reply.status, reply.json.get("error", {}).get("code")


# ---- the API ----
e = Engine(f"{folder}/api", *MODEL, "--max-context", "256", "--batches", "1,2,4", "--served-name", "m")
check("health while it loads, or after it", lambda s: s in (200, 503), e.first_health)
check("models", ["m"], [m["id"] for m in e.get("/v1/models").json["data"]])
whole = e.complete("Hello", max_tokens=12).json
check("usage", (5, 12, 17), tuple(whole["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")))
check("the end", "length", whole["choices"][0]["finish_reason"])
check("the prompt's bytes are its tokens", list(b"Hello"), whole["prompt_token_ids"])
check("tokens as a prompt", whole["choices"][0]["token_ids"], e.tokens(list(b"Hello"), 12))
check("16 tokens without max_tokens", 16, e.complete("Hello").json["usage"]["completion_tokens"])
check("a chat goes on to the end of the context", 256,
      e.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}).json["usage"]["total_tokens"])

connection, response = e.stream("Hello", 12, stream_options={"include_usage": True})
reply = Reply(response)
events = reply.events
check("a stream's type", "text/event-stream", reply.headers["content-type"])
check("a stream's text", whole["choices"][0]["text"], "".join(c["text"] for v in events for c in v["choices"]))
check("a stream's tokens", whole["choices"][0]["token_ids"], [t for v in events for c in v["choices"] for t in c["token_ids"]])
check("a stream's end", ["length"], [c["finish_reason"] for v in events for c in v["choices"] if c["finish_reason"]])
check("a stream's usage", whole["usage"]["completion_tokens"], events[-1]["usage"]["completion_tokens"])
check("the last line", True, reply.body.endswith(b"data: [DONE]\n\n"))

chat = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 5}
said = e.ask("POST", "/v1/chat/completions", chat).json
check("a chat's object and role", ("chat.completion", "assistant"), (said["object"], said["choices"][0]["message"]["role"]))
check("a chat is its template", e.complete("system: Be brief.\nuser: Hi\nassistant: ", max_tokens=5).json["choices"][0]["text"],
      said["choices"][0]["message"]["content"])
check("a chat's stream", said["choices"][0]["message"]["content"], e.ask("POST", "/v1/chat/completions", {**chat, "stream": True}).text)

text = whole["choices"][0]["text"]
stop = text[4:7]
cut = e.complete("Hello", max_tokens=12, stop=["no such text", stop]).json
check("a stop text", (text[:text.index(stop)], "stop"), (cut["choices"][0]["text"], cut["choices"][0]["finish_reason"]))
connection, response = e.stream("Hello", 200, stop=stop)
check("a stop text in a stream", text[:text.index(stop)], "".join(c["text"] for v in Reply(response).events for c in v["choices"]))

check("no JSON", (400, None), code(e.ask("POST", "/v1/completions", "{")))
check("invalid UTF-8", (400, None), code(e.ask("POST", "/v1/completions", b'{"prompt": "\xff"}')))
check("no object", (400, None), code(e.ask("POST", "/v1/completions", [1])))
check("another model", (404, "model_not_found"), code(e.complete("a", model="other")))
check("this model", 200, e.complete("a", model="m").status)
check("no prompt", (400, None), code(e.complete(None)))
check("an empty prompt", (400, None), code(e.complete("")))
check("a token that is none", (400, None), code(e.complete([300])))
check("a long prompt", (400, "context_length_exceeded"), code(e.complete("x" * 256)))
check("a very long prompt", (400, "context_length_exceeded"), code(e.complete("x" * 1000000)))
check("the longest prompt", 1, e.complete("x" * 255, max_tokens=5).json["usage"]["completion_tokens"])
for key, value in {"n": 2, "temperature": -1, "max_tokens": 0, "top_p": 0, "stream": "yes", "stop": [""],
                   "logprobs": 3, "echo": True, "seed": "x"}.items():
    reply = e.ask("POST", "/v1/completions", {"prompt": "a", key: value})
    check(f"{key}: {value}", (400, key), (reply.status, reply.json.get("error", {}).get("param")))
check("unknown fields", 200, e.complete("a", temperature=None, frequency_penalty=0.5, unheard_of={"x": []}).status)
check("another path", 404, e.get("/v2").status)
check("another method", 405, e.get("/v1/completions").status)

# ---- a prefix is computed once ----
first = e.complete(LONG, max_tokens=20).json
again = e.complete(LONG, max_tokens=20).json
check("nothing was there", 0, first["usage"]["prompt_tokens_details"]["cached_tokens"])
check("whole blocks were there", 96, again["usage"]["prompt_tokens_details"]["cached_tokens"])
check("and hold the same", first["choices"], again["choices"])
more = LONG + first["choices"][0]["token_ids"]
check("tokens that were made are reused, too", 112, e.complete(more, max_tokens=1).json["usage"]["prompt_tokens_details"]["cached_tokens"])

# ---- a client that goes ----
before = e.metrics()
connection, response = e.stream("Hello", 240)
response.read(10)
connection.sock.shutdown(socket.SHUT_RDWR)
response.close()
connection.close()
until("the batch is empty", lambda: e.metrics()["vllm:num_requests_running"] == 0)
key = 'vllm:request_success_total{finished_reason="abort"}'
until("its end is counted", lambda: e.metrics()[key] + e.metrics()['vllm:request_success_total{finished_reason="length"}'] >
      before[key] + before['vllm:request_success_total{finished_reason="length"}'])
m = e.metrics()
check("blocks are free again", 0.0, m["vllm:kv_cache_usage_perc"])
check("TTFT is counted", True, m["vllm:time_to_first_token_seconds_count"] > 10)
check("graphs are used", m["medusa_engine_decode_steps_total"], m["medusa_engine_graph_launches_total"])

# ---- the end: what runs is finished, nothing new begins ----
connection, response = e.stream("Hello", 200)
e.process.send_signal(signal.SIGTERM)
check("a stream is finished after SIGTERM", 200, sum(len(c["token_ids"]) for v in Reply(response).events for c in v["choices"]))
check("the exit code", 0, e.process.wait(60))

# ---- the same tokens whatever runs beside ----
want = offline(folder, MODEL, 12, 40, "--batches", "1,2,4,8", "--max-context", "256")
drawn = offline(folder, MODEL, 12, 20, "--batches", "1", "--max-context", "256", "--temperature", "0.8", "--sample-seed", "5")
for what, options in {"batches": ("--batches", "1,2,4,8"), "eager": ("--no-graphs", "--batches", "3"),
                      "few blocks": ("--batches", "1,2,4,12", "--kv-blocks", "14"), "one at a time": ("--batches", "1")}.items():
    e = Engine(f"{folder}/same", *MODEL, "--max-context", "256", *options)
    for times in range(2):
        check(f"{what}: tokens of 12 requests at once, time {times + 1}", want, e.at_once(PROMPTS, 40))
    check(f"{what}: tokens drawn from a seed", drawn, e.at_once(PROMPTS, 20, temperature=0.8, seed=5))
    if what == "few blocks":
        check("some gave way", lambda n: n > 0, e.metrics()["vllm:num_preemptions_total"])
    check(f"{what}: the exit code", 0, e.stop())
    if what == "batches":
        e = Engine(f"{folder}/nucleus", *MODEL, "--max-context", "256", *options)
        check("the likeliest token alone", want[0][:20], e.tokens(PROMPTS[0], 20, temperature=1, top_p=1e-6))
        check("without a seed, draws differ", False, e.tokens(PROMPTS[0], 20, temperature=2) == e.tokens(PROMPTS[0], 20, temperature=2))
        check("the exit code", 0, e.stop())

# ---- a client that does not read stops nobody else ----
e = Engine(f"{folder}/slow", *MODEL, "--max-context", "8192", "--batches", "1", "--kv-blocks", "500", listen=f"unix:{folder}/socket")
connection, response = e.stream("Hello", 6000)
made = lambda: e.metrics()["vllm:generation_tokens_total"]
until("no token is made for it", lambda: made() == (e.tokens("x", 1), made())[1] - 1)
check("others are answered", [e.tokens("x", 3)] * 3, e.at_once(["x"] * 3, 3))
check("it was not forgotten", 1, sum(e.metrics()[f"vllm:num_requests_{k}"] for k in ("running", "waiting")))
got = [t for v in Reply(response).events for c in v["choices"] for t in c["token_ids"]]
check("it gets all when it reads", 6000, len(got))
check("and the right ones", e.tokens("Hello", 500), got[:500])
check("the exit code", 0, e.stop())

# ---- a full queue ----
e = Engine(f"{folder}/full", *MODEL, "--max-context", "16384", "--batches", "1", "--kv-blocks", "1025", "--max-waiting", "1")
connection, response = e.stream("Hello", 16000)
response.read(1)
waits = threading.Thread(target=e.tokens, args=("Hello", 1))
waits.start()
until("one waits", lambda: e.metrics()["vllm:num_requests_waiting"] == 1)
reply = e.complete("Hello")
check("a full queue", (429, "queue_full", "1"), (*code(reply), reply.headers.get("retry-after")))
connection.sock.shutdown(socket.SHUT_RDWR)
response.close()
connection.close()
waits.join()
check("later there is room", 200, e.complete("Hello").status)
check("the exit code", 0, e.stop())

# ---- a device that fails ----
e = Engine(f"{folder}/fails", *MODEL, "--max-context", "256", env={"HOSTCUDA_FAULT": "cuGraphLaunch:30:LAUNCH_FAILED"})
reply = e.complete("Hello", max_tokens=100)
check("an answer that can't be finished", 500, reply.status)
check("the exit code of a failure", 1, e.process.wait(60))
check("its reason", True, "cuGraphLaunch" in e.stderr())
finish()
