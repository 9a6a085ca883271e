# SPDX-License-Identifier: Apache-2.0
"""The picture of the status page: picture.py FOLDER ENGINE FILE.png. docs/images/status-page.sh runs it."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import browser  # noqa: E402
from daemon import Daemon, free_ports, until  # noqa: E402
import daemon as shared  # noqa: E402

folder, engine, picture = sys.argv[1:4]
WIDTH = 1280
shared.PATIENCE = 100
# Two models of SmolLM2's shape (300 MB of weights from a seed) and two tiny ones; a KV block is 737,280 and 8,192 bytes.
MODELS = {"chat": ("smollm2-135m", 1, 80, 380), "code": ("tiny", 2, 12000, 110), "summaries": ("tiny", 3, 9000, 85),
          "translation": ("smollm2-135m", 4, 80, 380)}
config = f"startPort: {free_ports(len(MODELS))}\nhealthCheckTimeout: 120\nmedusa: {{gpus: [{{memory: 600MB}}]}}\nmodels:\n"
for name, (recipe, seed, blocks, megabytes) in MODELS.items():
    config += (f"  {name}:\n    cmd: {engine} --recipe models/recipes/{recipe}.yaml --seed {seed} --kv-blocks {blocks} --max-context 128"
               f" --batches 1,2,4 --serve 127.0.0.1:${{PORT}} --served-name ${{MODEL_ID}}\n    medusa: {{memory: {megabytes}MB}}\n")
CELLS = "Object.fromEntries(Array.from(document.querySelectorAll('#models tr'), r => [r.dataset.model, Array.from(r.cells, c => c.textContent)]))"
STATE, WAIT, RUN = 1, 5, 6


def ask(model, tokens):
    reply = d.ask("POST", "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "Hello"}],
                                                   "max_tokens": tokens, "stream": True})
    if reply.status != 200 and not ended.is_set():
        sys.exit(f"{model}: {reply.status} {reply.body[:200]}")


def in_background(model, tokens, again=False):
    def work():
        ask(model, tokens)
        while again and not ended.is_set():
            ask(model, tokens)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def moment(cells):
    """Whether all that the page can show is there at once."""
    return (cells["chat"][STATE] == "swapped" and cells["chat"][WAIT] != "0" and cells["translation"][STATE] == "starting" and
            all(cells[name][STATE] == "ready" for name in ("code", "summaries")) and cells["code"][RUN] != "0")


if not browser.find():
    sys.exit("no Chromium here (Debian: chromium-headless-shell)")
ended = threading.Event()
d = Daemon(f"{folder}/worker", config, env={"LD_LIBRARY_PATH": os.environ["ENGINE_LIBRARIES"]})
try:
    for name, count in {"chat": 6, "code": 23, "summaries": 14}.items():
        for _ in range(count):
            ask(name, 12)
    with browser.Browser() as view:
        view.resize(WIDTH, 720)
        view.open(f"http://127.0.0.1:{d.port}/ui")
        until("all models are there", lambda: len(view.evaluate(CELLS)) == len(MODELS))
        view.evaluate("(w => { w.value = 'code'; w.dispatchEvent(new Event('change')); })(document.getElementById('which'))")
        for _ in range(2):
            in_background("code", 60, again=True)
        in_background("summaries", 30, again=True)
        for _ in range(2):
            in_background("translation", 12)
        until("chat gives way", lambda: d.running().get("chat") != "ready")
        for _ in range(3):
            in_background("chat", 12)
        if not until("models wait, start, serve and are swapped out", lambda: moment(view.evaluate(CELLS))):
            sys.exit(f"not seen: {view.evaluate(CELLS)}\n{d.stderr()}")
        view.screenshot(picture)
        if not moment(view.evaluate(CELLS)):
            sys.exit("the moment was over before the picture was taken: run it again")
finally:
    ended.set()
    d.stop()
print(f"{picture}: {os.path.getsize(picture)} bytes")
