# SPDX-License-Identifier: Apache-2.0
"""The status page of medusa-worker in a browser: status_page.py FOLDER [SCREENSHOTS]."""
import atexit
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import browser  # noqa: E402
from etcd import Etcd  # noqa: E402
from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, free_ports, until  # noqa: E402

folder, shots = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
ODD = "</td><script>document.title='broken'</script><img src=http://localhost/x>"
config = f"""
startPort: PORT
medusa: {{gpus: [{{memory: 2GB}}]}}
models:
  a: {{cmd: "{ENGINE} --name a --lora-slots 1", medusa: {{memory: 1GB, swap: off, adapters: {{z-style: {{path: /none, bytes: 1MB}}}}}}}}
  b/with/slashes: {{cmd: "{ENGINE} --name b", medusa: {{memory: 1GB, swap: off}}}}
  dies: {{cmd: "{ENGINE} --name dies --die-at-start", medusa: {{memory: 1GB, swap: off}}}}
  "{ODD}": {{cmd: "{ENGINE} --name odd", medusa: {{memory: 1GB, swap: off}}}}
  {"verylongname" * 10}: {{cmd: "{ENGINE} --name long", medusa: {{memory: 1GB, swap: off}}}}
"""
ROWS = "Object.fromEntries(Array.from(document.querySelectorAll('#models tr'), r => [r.dataset.model, Array.from(r.cells, c => c.textContent)]))"
CUT_OFF = """(() => {
    const boxed = e => { for (; e; e = e.parentElement) if (getComputedStyle(e).overflowX === 'auto') return true; return false; };
    return Array.from(document.querySelectorAll('main *')).filter(e => e.getBoundingClientRect().width && !boxed(e) && e.tagName !== 'OPTION' &&
        e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + ' ' + e.textContent.slice(0, 40)).slice(0, 5);
})()"""
# Text on its background: the ratio of their luminances, by WCAG; 4.5 is what it asks for.
CONTRAST = """(() => {
    const light = colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                              return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return light(c); } return 1; };
    const ratio = e => { const ink = light(getComputedStyle(e).color), paper = behind(e); return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); };
    return Math.min(...['body', '.quiet', 'td', '.state', '.state.ready', 'button', 'pre', 'select'].map(n => ratio(document.querySelector(n))));
})()"""


def row(view, model):
    return (view.evaluate(ROWS) or {}).get(model, [""] * 13)


def click(view, model, verb):
    view.evaluate(f"Array.from(document.querySelectorAll('#models tr')).find(r => r.dataset.model === {model!r}).querySelector('.{verb}').click()")


def check_widths(view):
    for width in (360, 800, 1200, 1920):
        for dark in (False, True):
            view.resize(width, 900, dark)
            where = f"{width} px{', dark' if dark else ''}"
            check(f"{where}: its width", lambda wide: wide <= width, view.evaluate("document.documentElement.scrollWidth"))
            check(f"{where}: cut off", [], view.evaluate(CUT_OFF))
            check(f"{where}: contrast", lambda ratio: ratio >= 4.5, view.evaluate(CONTRAST))
            if shots:
                view.screenshot(f"{shots}/{width}{'-dark' if dark else ''}.png")


def show_cluster(view):
    first = free_ports(10)
    etcd = Etcd(folder, first)
    atexit.register(etcd.stop)
    one, other = (Daemon(f"{folder}/{name}", f'startPort: {first + 2 + 4 * i}\nmodels: {{m{i}: {{cmd: "{ENGINE} --name m{i}"}}}}\nmedusa: {{gpus: [{{memory: 2GB}}], adopt_time: 0s}}\n', "--cluster", etcd.urls,
                         "--node", name) for i, name in enumerate(("one", "other")))
    atexit.register(other.process.kill)
    view.open(f"http://127.0.0.1:{one.port}/ui")
    until("both nodes are there", lambda: nodes(view) == [["one (this one)", "ready", "-", "1", "2.0 GB", "1", "0", f"http://127.0.0.1:{one.port}"],
                                                         ["other", "ready", "-", "1", "2.0 GB", "1", "0", f"http://127.0.0.1:{other.port}"]])
    check("who it is", True, view.evaluate("document.getElementById('member').textContent").startswith("This node is one, joined. It has passed 0 requests on"))
    one.chat("m1")
    until("what was passed on is counted", lambda: "It has passed 1 requests on" in view.evaluate("document.getElementById('member').textContent"))
    check_widths(view)
    check("drain", 0, one.ctl("cluster", "drain", "other").returncode)
    until("that is shown", lambda: nodes(view)[1][1:3] == ["draining", "drain"])
    other.process.kill()
    until("a node whose lease has ended", lambda: nodes(view)[1][1:3] == ["lease ended", "drain"])
    check("the exit code", 0, one.stop())


def nodes(view):
    return view.evaluate("Array.from(document.querySelectorAll('#nodes tr'), r => Array.from(r.cells, c => c.textContent))")


if not browser.find():
    print("no Chromium here (Debian: chromium-headless-shell)")
    sys.exit(77)
d = Daemon(f"{folder}/page", config.replace("PORT", str(free_ports(6)), 1))
page = d.get("/ui")
policy = page.headers.get("content-security-policy", "")
check("the page's policy", True, "default-src 'none'" in policy and "unsafe" not in policy and "script-src 'sha256-" in policy)
check("the same at /", page.body, d.get("/").body)
with browser.Browser() as view:
    view.open(f"http://127.0.0.1:{d.port}/ui")
    until("all models are there", lambda: len(view.evaluate(ROWS)) == 6)
    check("an adapter stands below its model", [["a", ""], ["z-style", "adapter"]],
          view.evaluate("Array.from(document.querySelectorAll('#models tr'), r => [r.dataset.model, r.cells[0].className])")[1:3])
    check("a name that would be an element", True, ODD in view.evaluate(ROWS))
    check("it is text", ("medusa-worker", 0), (view.evaluate("document.title"), view.evaluate("document.querySelectorAll('img').length")))
    check("stopped", "stopped", row(view, "a")[1])
    for model in ("a", "b/with/slashes"):
        click(view, model, "load")
        until(f"{model} is loaded", lambda: row(view, model)[1] == "ready")
    check("the daemon says so, too", {"a": "ready", "b/with/slashes": "ready"}, d.running())
    check("memory of the GPU", (2e9, 2e9, True), (view.evaluate("document.querySelector('meter').value"), view.evaluate("document.querySelector('meter').max"),
                                                  "2.0 GB of 2.0 GB" in view.evaluate("document.getElementById('gpus').textContent")))
    d.chat("a")
    until("it is counted, and timed", lambda: row(view, "a")[7] == "1" and "/" in row(view, "a")[11])
    check_widths(view)
    held, waiting = Held(d, "a"), Held(d, ODD).let_go()
    until("one runs, or waits for room", lambda: row(view, "a")[6] == "1")
    held.let_go().wait()
    waiting.wait()
    click(view, "dies", "load")
    until("why it failed", lambda: "exit code 3" in view.evaluate("document.getElementById('trouble').textContent"))
    view.evaluate("(w => { w.value = 'a'; w.dispatchEvent(new Event('change')); })(document.getElementById('which'))")
    until("its log", lambda: "a listens on" in view.evaluate("document.getElementById('log').textContent"))
    with open(f"{d.folder}/state/a.log", "a", encoding="utf-8") as log:
        log.write("one more line\n")
    until("the log goes on", lambda: "one more line" in view.evaluate("document.getElementById('log').textContent"))
    d.ctl("load", "a")
    click(view, "a", "unload")
    until("it is stopped", lambda: row(view, "a")[1] == "stopped")
    check("what the browser complains of, but for the answer of the engine that dies", [], [c for c in view.complaints() if "502" not in c])

    check("a daemon that is alone shows no cluster", True, view.evaluate("document.getElementById('cluster').hidden"))

    # In a cluster, it shows the nodes.
    if shutil.which("etcd") and shutil.which("etcdctl"):
        show_cluster(view)
    else:
        print("no etcd here (Debian: etcd-server etcd-client): skipped the page of a cluster")

    # With keys, the page asks for one.
    keyed = Daemon(f"{folder}/keyed", config.replace("PORT", str(free_ports(6)), 1).replace("\nmodels:", "\napiKeys: [secret]\nmodels:"))
    view.open(f"http://127.0.0.1:{keyed.port}/")
    until("it asks", lambda: view.evaluate("!document.getElementById('login').hidden && document.getElementById('shown').hidden"))
    for key, shown in (("wrong", False), ("secret", True)):
        view.evaluate(f"document.getElementById('key').value = '{key}'; document.querySelector('#login button').click()")
        until(f"the key {key}", lambda: view.evaluate("!document.getElementById('shown').hidden") == shown and
              ("not valid" in view.evaluate("document.getElementById('summary').textContent")) != shown)
    click(view, "a", "load")
    until("an order with the key", lambda: row(view, "a")[1] == "ready")
    check("the exit code", 0, keyed.stop())
    until("it says that nobody answers", lambda: "does not answer" in view.evaluate("document.getElementById('summary').textContent"))
check("the exit code", 0, d.stop())
finish()
