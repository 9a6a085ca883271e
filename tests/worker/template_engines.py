# SPDX-License-Identifier: Apache-2.0
"""Warm templates of medusa-worker: template_engines.py FOLDER. Engines are forked by a process that has imported what is slow."""
import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

from daemon import HERE, PATIENCE, Daemon, check, finish, free_ports, lives, until

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
first = free_ports(16)
ROOT = os.path.dirname(os.path.dirname(HERE))
os.environ["PYTHONPATH"] = f"{ROOT}/models/torch:{folder}:{HERE}"
PYTHON = sys.executable
TEMPLATE = f"{PYTHON} -m medusa.template"


def write(name, text):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        file.write(text)
    return f"{folder}/{name}"


# Imported once by each process that imports it by itself; it reads a variable meanwhile.
write("slow_module.py", f'''
import os
READ = os.environ.get("SLOW_READS")
os.environ["SLOW_SETS"] = "set"
with open({folder!r} + "/imports", "a") as file:
    file.write(str(os.getpid()) + "\\n")
''')
# What a program can see of how it was started.
SEEN = '''
import json, os, signal, sys
def links():
    for n in os.listdir("/proc/self/fd"):
        if int(n) > 2 and os.path.exists("/proc/self/fd/" + n):
            yield os.readlink("/proc/self/fd/" + n)
print("SEEN " + json.dumps({
    "name": __name__, "file": __file__, "argv": sys.argv, "path": sys.path[0], "orig": sys.orig_argv, "cwd": os.getcwd(),
    "env": {k: v for k, v in sorted(os.environ.items()) if k not in ("MEDUSA_TEMPLATE", "MEDUSA_ARGUMENTS", "MEDUSA_WORKER_ENGINE")},
    "main": sys.modules["__main__"].__dict__ is globals(), "stdin": os.readlink("/proc/self/fd/0"),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)],
    "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "open": sorted(links()),
    "group": os.getpgid(0) == os.getpid(), "spec": __spec__ is None, "buffered": [sys.stdout.line_buffering, sys.stdout.write_through],
}), flush=True)
'''
ENGINE = write("slow_engine.py", f'''
import slow_module
{SEEN}
import runpy
runpy.run_path("{HERE}/engine.py", run_name="__main__")
''')
os.makedirs(f"{folder}/a_package", exist_ok=True)
write("a_package/__init__.py", "")
write("a_package/__main__.py", f'import slow_module\nassert __package__ == "a_package"\n{SEEN}\nimport runpy\nrunpy.run_path("{HERE}/engine.py", run_name="__main__")\n')
SCRIPT = write("script", f"#!{PYTHON}\nimport runpy\nrunpy.run_path({ENGINE!r}, run_name='__main__')\n")
os.chmod(SCRIPT, 0o755)


def imports():
    try:
        with open(f"{folder}/imports", encoding="utf-8") as file:
            return file.read().split()
    except FileNotFoundError:
        return []


def seen(daemon, model):
    """What its engines have seen, one after the other."""
    log = re.sub(r'"--port", "\d+"', '"--port", ""', daemon.engine_log(model))
    return [json.loads(line[5:]) for line in log.split("\n") if line.startswith("SEEN ")]


def log_of(daemon, name="t"):
    with open(f"{daemon.folder}/state/template~{name}.log", encoding="utf-8") as file:
        return file.read()


def config(models, templates, port=first):
    text = f"startPort: {port}\nhealthCheckTimeout: 60\ngroups: {{all: {{swap: false, members: [{', '.join(models)}]}}}}\nmedusa:\n  templates:\n"
    text += "".join(f"    {name}: {{{body}}}\n" for name, body in templates.items())
    return text + "models:\n" + "".join(f"  {name}: {{{body}}}\n" for name, body in models.items())


def model(command, template="t", more=""):
    return f'cmd: "{command} --port ${{PORT}}", medusa: {{template: {template}}}{more}'


def ready(daemon, name="t"):
    return until("the template is ready", lambda: "ready:" in log_of(daemon, name))


MODELS = {
    "script": model(f"{PYTHON} -u {ENGINE} --name script", more=", env: ['OF_THE_MODEL=1', 'CUDA_VISIBLE_DEVICES=7']"),
    "module": model(f"{PYTHON} -m a_package --name module"),
    "file": model(f"{SCRIPT} --name file"),
    "shell": model(f"env A=b {PYTHON} {ENGINE} --name shell"),
    "other": model(f"{PYTHON} {ENGINE} --name other", more=", env: ['SLOW_READS=other']"),
}
TEMPLATES = {"t": f'cmd: "{TEMPLATE} slow_module"'}
warm = config(MODELS, TEMPLATES)

# Forked engines see what engines of a command see.
d = Daemon(f"{folder}/warm", warm)
ready(d)
check("the template has imported", 1, len(imports()))
forked = {}
for name in ("script", "module", "file"):
    r = d.chat(name)
    forked[name] = r.json.get("pid")
    check(f"{name} is served", (200, name), (r.status, r.json.get("name")))
check("nothing was imported again", 1, len(imports()))
for name, why in (("shell", "is neither"), ("other", "SLOW_READS has another value")):
    check(f"{name} is served by its command", 200, d.chat(name).status)
    check(f"{name}: why", True, bool(re.search(f"model {name}: template t does not fork its engine, so the command is run: .*{why}", d.stderr())))
check("these have imported", 3, len(imports()))
cold = Daemon(f"{folder}/cold", config(MODELS, {"t": "cmd: 'sleep 600'"}, first + 8))
for name in forked:
    check(f"{name} without its template", 200, cold.chat(name).status)
    for what, value in seen(d, name)[0].items():
        check(f"{name} sees the same {what}", seen(cold, name)[0][what], value)
check("a variable that the import has set", "set", seen(d, "script")[0]["env"].get("SLOW_SETS"))
check("why it was not forked", True, "template t does not fork its engine, so the command is run: it is not there yet" in cold.stderr())
check("the exit code", 0, cold.stop())
check("unload", 0, d.ctl("unload", "file").returncode)
check("forked engines end as others", False, lives(forked["file"]))

# An engine's end is seen, with its reason; the template's end costs no engine.
pid = d.chat("script").json.get("pid")
r = d.chat("script", die=1)
check("it has died twice", True, r.status == 502 and "was killed by SIGKILL" in r.json["error"]["message"])
pid = d.chat("script").json.get("pid")


def template_of(daemon):
    """The socket has the daemon's process in its name; engines that it has forked have the same environment, for the kernel."""
    engines = [int(re.search(r"engine-(\d+)", path)[1]) for path in glob.glob(f"{daemon.control}.engines/engine-*.json")]
    mine = f"MEDUSA_TEMPLATE_SOCKET={daemon.control}.engines/template-0-{daemon.process.pid}".encode()
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if mine in file.read().split(b"\0") and lives(int(path.split("/")[2])):
                    found.append(int(path.split("/")[2]))
        except OSError:
            pass
    found = [pid for pid in found if pid not in engines]
    return found[0] if len(found) == 1 else check("one template", 1, found)


os.kill(template_of(d), signal.SIGKILL)
until("that is said", lambda: "template t was killed by SIGKILL (Killed); it is started again in 1 s" in d.stderr())
check("its engine goes on", pid, d.chat("script").json.get("pid"))
until("it is there again", lambda: log_of(d).count("ready:") == 2)
count = len(imports())
check("and forks", 200, d.chat("module").status)
check("nothing was imported for that", count, len(imports()))

# A file that the template has imported has changed.
os.utime(f"{folder}/slow_module.py", (1, 1))
check("unload", 0, d.ctl("unload", "module").returncode)
count = len(imports())
check("its command is run", 200, d.chat("module").status)
check("which imports what there is now", count + 1, len(imports()))
check("it is said", True, "slow_module.py has changed since the template imported it" in d.stderr())

# The next daemon adopts forked engines, and has a template of its own.
old, module = template_of(d), d.chat("module").json.get("pid")
d.stop(signal.SIGKILL)
d = Daemon(d.folder, warm)
check("adopted", [pid, module], [d.chat(name).json.get("pid") for name in ("script", "module")])
until("the old template has ended", lambda: not lives(old))
until("the new one is ready", lambda: log_of(d).count("ready:") == 3)
check("forks go on", 200, d.chat("file").status)
d.stop(signal.SIGKILL)
d = Daemon(d.folder, warm)
check("adopted again", [pid, module], [d.chat(name).json.get("pid") for name in ("script", "module")])
check("the exit code", 0, d.stop())
until("all have ended", lambda: not lives(pid) and not lives(module))
check("no socket is left", [], glob.glob(f"{d.control}.engines/template-*"))

# Templates that are none, or do harm.
FAKE = write("fake.py", '''
import json, os, socket, sys
answer = sys.argv[1]
listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listening.bind(os.environ["MEDUSA_TEMPLATE_SOCKET"])
listening.listen(8)
print("ready:", flush=True)
while True:
    connection, _ = listening.accept()
    connection.recv(1 << 20)
    if answer == "close":
        connection.close()
        continue
    texts = {"junk": "{", "long": "x" * 9000, "init": json.dumps({"pid": 1}), "negative": json.dumps({"pid": -1}), "own": json.dumps({"pid": os.getpid()}),
             "daemon": json.dumps({"pid": os.getppid()}), "gone": json.dumps({"pid": 2147483000}), "text": json.dumps({"pid": "5"})}
    connection.sendall(texts[answer].encode() + b"\\n")
''')
kinds = ("close", "junk", "long", "init", "negative", "own", "daemon", "gone", "text")
bad = config({kind: model(f"{PYTHON} {HERE}/engine.py --name {kind}", template=kind) for kind in kinds},
             {**{kind: f'cmd: "{PYTHON} {FAKE} {kind}"' for kind in kinds}, "ends": f'cmd: "{TEMPLATE} no_such_module"'})
d = Daemon(f"{folder}/bad", bad)
for kind in kinds:
    ready(d, kind)
    r = d.chat(kind)
    check(f"{kind}: its command is run", (200, kind), (r.status, r.json.get("name")))
    check(f"{kind}: it is said", True, f"template {kind} does not fork its engine, so the command is run: " in d.stderr())
until("a template that ends is started later and later", lambda: "template ends ended with exit code 1; it is started again in 2 s" in d.stderr())
check("it says why", True, "no_such_module: ModuleNotFoundError" in log_of(d, "ends"))
check("the exit code", 0, d.stop())

# What clients may send to a template; it goes on all the same.
PLACE = f"{folder}/own.sock"
with open(f"{folder}/own.log", "wb") as log:
    own = subprocess.Popen([PYTHON, "-m", "medusa.template", "--socket", PLACE], stdout=log, stderr=log)


def own_log():
    with open(f"{folder}/own.log", encoding="utf-8") as file:
        return file.read()


until("it is ready", lambda: "ready:" in own_log())
check("its socket is its user's", 0o600, os.stat(PLACE).st_mode & 0o777)
ran = write("ran.py", f"open({folder!r} + '/ran', 'a').write('x')\n")
good = {"version": 1, "argv": [PYTHON, ran], "env": dict(os.environ), "cwd": folder}


def ask(question, descriptors=(0, 1, 2), then=None):
    """The answer to these bytes, or to this object as a line."""
    data = question if isinstance(question, bytes) else json.dumps(question).encode() + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE)
        client.connect(PLACE)
        socket.send_fds(client, [data], descriptors)
        if not data.endswith(b"\n"):
            client.shutdown(socket.SHUT_WR)
        answer = client.makefile().readline()
        if then is not None:
            client.sendall(then)
        return json.loads(answer)


os.mkfifo(f"{folder}/pipe")
for what, question, descriptors, why in (
        ("a pipe", {**good, "argv": [f"{folder}/pipe"]}, (0, 1, 2), "is no file"), ("no JSON", b"{\n", (0, 1, 2), "not JSON"), ("deep JSON", b"[" * 100000 + b"\n", (0, 1, 2), "not JSON"), ("no object", b"[]\n", (0, 1, 2), "version 1"),
        ("another version", {**good, "version": 2}, (0, 1, 2), "version 1"), ("no argv", {**good, "argv": []}, (0, 1, 2), "argv"),
        ("a NUL", {**good, "argv": ["a\0b"]}, (0, 1, 2), "argv"), ("env", {**good, "env": {"A=B": "c"}}, (0, 1, 2), "env"),
        ("cwd", {**good, "cwd": "here"}, (0, 1, 2), "cwd"), ("no descriptors", good, (), "0 descriptors"), ("too many", good, (0, 1, 2, 2), "too large"),
        ("half a line", b'{"version": 1', (0, 1, 2), "not whole"), ("no Python", {**good, "argv": ["/bin/true"]}, (0, 1, 2), "is neither"),
        ("an option", {**good, "argv": [PYTHON, "-c", "1"]}, (0, 1, 2), "-u"), ("nothing", {**good, "argv": ["/no/such"]}, (0, 1, 2), "No such file"),
        ("C libraries", {**good, "env": {**os.environ, "LD_BIND_NOW": "1"}}, (0, 1, 2), "LD_BIND_NOW has another value"),
        ("an artifact", {**good, "env": {**os.environ, "MEDUSA_ARTIFACT": "/x"}}, (0, 1, 2), "libmedusa-restore.so")):
    check(f"{what} is refused", True, why in ask(question, descriptors).get("refused", ""))
pid = ask(good, then=b"stop\n").get("pid")
until("another word than go ends the process", lambda: pid and not lives(pid))
pid = ask(good).get("pid")
until("so does the end of the connection", lambda: pid and not lives(pid))
check("neither has run", False, os.path.exists(f"{folder}/ran"))
ask(good, then=b"go\n")
until("go runs it", lambda: os.path.exists(f"{folder}/ran"))
own.terminate()
check("its exit code", 0, own.wait(PATIENCE))
check("its socket is gone", False, os.path.exists(PLACE))

# A template that cannot be forked says so; a model whose memory is swapped has none.
write("with_thread.py", "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n")
d = Daemon(f"{folder}/thread", config({"a": f'cmd: "{PYTHON} {HERE}/engine.py --port ${{PORT}}", medusa: {{template: t, swap: on, memory: 1MB}}'},
                                      {"t": f'cmd: "{TEMPLATE} with_thread"'}))
until("why", lambda: "with_thread cannot be in a template: after its import threads are running" in log_of(d))
check("swap", True, "models.a.medusa.template has no effect" in d.stderr())
check("the exit code", 0, d.stop())
d = Daemon(f"{folder}/checkpoint", config({"a": f'cmd: "{PYTHON} {HERE}/engine.py --port ${{PORT}}", medusa: {{template: t, swap: checkpoint, memory: 1MB}}'},
                                          {"t": f'cmd: "{TEMPLATE} json"'}))
check("checkpoint", True, "models.a.medusa.template has no effect" in d.stderr())
check("its engine is started by its command", 200, d.chat("a").status)
check("the exit code", 0, d.stop())
finish()
