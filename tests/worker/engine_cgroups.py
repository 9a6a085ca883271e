# SPDX-License-Identifier: Apache-2.0
"""Each engine in a cgroup of its own: engine_cgroups.py FOLDER. What an engine leaves behind outside of its session ends with it.

Exit code 77, and why in the last line: no cgroup can be made here, so only what holds without them was looked at.
"""
import atexit
import glob
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from adopt_parts import keeper_of, records
from daemon import ENGINE, HERE, PATIENCE, Daemon, check, finish, free_ports, lives, until

folder = sys.argv[1]
first = free_ports(8)
ROOT = os.path.dirname(os.path.dirname(HERE))
os.environ["MEDUSA_LOG"] = "info"  # where cgroups are made
os.environ["PYTHONPATH"] = f"{ROOT}/models/torch:{folder}:{HERE}"
# An engine that starts a process in a session of its own, as a container's helper or a pool of workers may be.
LEAVES = f"{folder}/leaves.py"
with open(LEAVES, "w", encoding="utf-8") as script:
    script.write(f'''
import runpy, subprocess, sys
inner = "import os, time; os.fork() and os._exit(0); os.setsid(); open({folder!r} + '/left', 'a').write(str(os.getpid()) + chr(10)); time.sleep(600)"
subprocess.run([sys.executable, "-c", inner], check=True)
runpy.run_path("{HERE}/engine.py", run_name="__main__")
''')
LEAVING = ENGINE.replace(f"{HERE}/engine.py", LEAVES)


def config(models, more=""):
    # JSON is YAML, and IDs may be anything
    return json.dumps({"startPort": first, "healthCheckTimeout": 60, "unloadTimeout": 1,
                       "groups": {"all": {"swap": False, "members": list(models)}}, "models": models,
                       "medusa": {"adopt_time": "30s", **(more or {})}})


def plain(name="engine", command=LEAVING, **own):
    return {"cmd": f"{command} --name {name}", "medusa": {"memory": "10MB", "swap": "off", **own}}


def left():
    """The process that the last engine has left."""
    def read():
        with open(f"{folder}/left", encoding="utf-8") as file:
            lines = file.read().split("\n")
        return lines[-2] if len(lines) > 1 else None
    return int(until("a process is left", lambda: os.path.exists(f"{folder}/left") and read()))


def cgroup_of(pid):
    """Below the mount; None: it is gone."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
            return next((line[3:] for line in file.read().split("\n") if line.startswith("0::")), None)
    except OSError:
        return None


def serve(daemon, model):
    """The engine's process, and the one that it leaves."""
    pid = daemon.chat(model).json.get("pid")
    check(f"{model} is served", True, bool(pid))
    return pid, left()


def end(daemon, *pids):
    check("the exit code", 0, daemon.stop())
    until("all have ended", lambda: not any(lives(pid) for pid in pids))


# ---- without cgroups ----

d = Daemon(f"{folder}/off", config({"a": plain()}, {"cgroup": "off"}))
pid, stays = serve(d, "a")
check("it is in the daemon's cgroup", cgroup_of(d.process.pid), cgroup_of(pid))
check("unload", 0, d.ctl("unload", "a").returncode)
check("what has left the session stays, as ever", (False, True), (lives(pid), lives(stays)))
os.kill(stays, signal.SIGKILL)
end(d)


def refused(path, why, **more):
    """By --check and by a start, with the path and the reason."""
    with open(f"{folder}/refused.yaml", "w", encoding="utf-8") as out:
        out.write(config({"a": plain()}, {"cgroup": path}))
    for options in (["--check"], ["--listen", "127.0.0.1:0", "--state", f"{folder}/state", "--control", f"{folder}/control"]):
        done = subprocess.run(["medusa-worker", "--config", f"{folder}/refused.yaml", *options], capture_output=True, text=True, timeout=PATIENCE, check=False, **more)
        check(f"{path}: {options[0]}", (3, True), (done.returncode, f"medusa.cgroup is {path}, where engines can have no cgroups: " in done.stderr and why in done.stderr))


refused(f"{folder}/nothing", "No such file or directory")
refused(folder, "no cgroup of version 2")
refused("/proc/self/cgroup", "Not a directory")
with open(f"{folder}/refused.yaml", "w", encoding="utf-8") as file:
    file.write(config({"a": plain()}, {"cgroup": "here/there"}))
done = subprocess.run(["medusa-worker", "--config", f"{folder}/refused.yaml", "--check"], capture_output=True, text=True, timeout=PATIENCE, check=False)
check("no path", (3, True), (done.returncode, "auto, off or the absolute path of a folder of cgroups is wanted" in done.stderr))

# ---- where this test may make cgroups ----


def find_mount():
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        for line in mounts:
            words = line.split()
            if " - cgroup2 " in line and words[3] == "/":
                return words[4]
    return None


mount, own = find_mount(), cgroup_of("self")
base = f"{mount}{own}".rstrip("/") if mount and own else None
top = f"{base}/medusa-test-{os.getpid()}"
try:
    if not base:
        raise OSError("there is no cgroup of version 2")
    os.makedirs(f"{top}/medusa-daemon")
    with open(f"{top}/medusa-daemon/cgroup.procs", "w", encoding="utf-8") as file:
        file.write("0")
    if not os.path.exists(f"{top}/cgroup.kill"):
        raise OSError("this kernel has no cgroup.kill")
    if os.path.exists("/run/systemd/system"):
        os.setxattr(top, "user.delegate", b"1")
    whole = True
except OSError as why:
    whole, reason = False, why


frozen = []  # folders of the freezer


def thaw():
    for place in frozen:
        with open(f"{place}/freezer.state", "w", encoding="utf-8") as out:
            out.write("THAWED")


def clean():
    """Back to where the test was, and nothing is left."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        thaw()
        with open(f"{base}/cgroup.procs", "w", encoding="utf-8") as file:
            file.write("0")
        with open(f"{top}/cgroup.kill", "w", encoding="utf-8") as file:
            file.write("1")
    except OSError:
        pass
    for place in frozen + [place for place, _, _ in os.walk(top, topdown=False)]:
        until(f"{place} is empty", lambda: not subprocess.run(["rmdir", place], capture_output=True, check=False).returncode or not os.path.exists(place))


def folders(where=None):
    return sorted(path for path in glob.glob(f"{where or top}/medusa-*") if not path.endswith("/medusa-daemon"))


def folder_of(pid):
    return f"{mount}{cgroup_of(pid)}"


def engines():
    # As an engine is told to end, as it ends by itself, and as it ends with the daemon.
    d = Daemon(f"{folder}/auto", config({"a": plain()}))
    check("it is said", True, f"each engine has a cgroup of its own, in {top}\n" in d.stderr())
    check("the probe has left nothing", [], folders())
    pid, stays = serve(d, "a")
    check("a cgroup with both", [folder_of(pid)] * 2, [*folders(), folder_of(stays)])
    check("the daemon is not in it", f"{top}/medusa-daemon", folder_of(d.process.pid))
    check("unload", 0, d.ctl("unload", "a").returncode)
    check("when it is unloaded, nothing lives, and the folder is gone", (False, False, []), (lives(pid), lives(stays), folders()))
    pid, stays = serve(d, "a")
    os.kill(pid, signal.SIGKILL)
    until("what it has left ends", lambda: not lives(stays) and not folders())
    pid, stays = serve(d, "a")
    end(d)
    check("with the daemon", (False, False, []), (lives(pid), lives(stays), folders()))
    # The keeper kills what an engine leaves as well, so here it can't.
    d = Daemon(d.folder, config({"a": plain()}))
    pid, stays = serve(d, "a")
    os.kill(keeper_of(d), signal.SIGSTOP)
    check("unload", 0, d.ctl("unload", "a").returncode)
    check("the daemon alone ends all", (False, False, []), (lives(pid), lives(stays), folders()))
    os.kill(keeper_of(d), signal.SIGCONT)
    end(d)
    # One that cannot be started leaves no folder.
    d = Daemon(d.folder, config({"none": {"cmd": f"{folder}/no-such-command ${{PORT}}"}, "deaf": plain("deaf", f"{ENGINE} --ignore-term")}))
    check("a command that is not there", 502, d.chat("none").status)
    check("is named", True, "no-such-command: No such file or directory" in d.stderr())
    check("its folder is gone", [], folders())
    pid = d.chat("deaf").json.get("pid")
    end(d, pid)
    check("nothing is left", [], folders())


def unkillable():
    """A process that does not end although it was killed, as one in a driver's call may not: its engine has not ended until it has."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        freezer = next((line.split()[4] for line in mounts if re.search(r" - cgroup \S+ \S*\bfreezer\b", line)), None)
    try:
        place = f"{freezer}/medusa-test-{os.getpid()}"
        os.mkdir(place)
    except OSError as why:
        print(f"skipped: a process that cannot be killed (no freezer of version 1: {why})")
        return
    frozen.append(place)
    d = Daemon(f"{folder}/unkillable", config({"a": plain()}))
    pid, stays = serve(d, "a")
    for file, text in (("tasks", str(stays)), ("freezer.state", "FROZEN")):
        with open(f"{place}/{file}", "w", encoding="utf-8") as out:
            out.write(text)

    def state():
        with open(f"{place}/freezer.state", encoding="utf-8") as file:
            return file.read().strip()
    until("it is frozen", lambda: state() == "FROZEN")
    unload = subprocess.Popen(["medusa-workerctl", "unload", "a", "--socket", d.control])
    until("the engine's own process has ended", lambda: not lives(pid))
    until("more than unloadTimeout has passed", lambda: not os.path.exists(f"/proc/{pid}") and "stopping" in d.running().values() and d.tell("status")["uptime_s"] > 3)
    check("it has not stopped, and is not told to have", ("stopping", None, True), (d.running().get("a"), unload.poll(), lives(stays)))
    thaw()
    check("now it has", 0, unload.wait(PATIENCE))
    check("nothing is left", (False, [], {}), (lives(stays), folders(), d.running()))
    end(d)


def see_as(name, command, more):
    """What the command's process sees of how it was started, by a daemon to which somebody has left an open descriptor."""
    os.makedirs(f"{folder}/bin", exist_ok=True)
    with open(f"{folder}/bin/medusa-worker", "w", encoding="utf-8") as out:
        out.write(f'#!/bin/sh\nexec 7</dev/zero\nexec {shutil.which("medusa-worker")} "$@"\n')
    os.chmod(f"{folder}/bin/medusa-worker", 0o755)
    d = Daemon(f"{folder}/{name}", config({"see": {"cmd": command}}, more), env={"PATH": f"{folder}/bin:{os.environ['PATH']}"})
    d.chat("see")
    seen = re.findall(r"SEEN (.*)", d.engine_log("see"))
    end(d)
    return seen and re.sub(r"\b[0-9]{5}\b", "N", seen[-1])  # ports


def same_start():
    """In a cgroup or not: groups, signals, descriptors, folder and variables are the same."""
    with open(f"{folder}/see.py", "w", encoding="utf-8") as file:
        file.write('''
import os, signal, sys
links = {n: os.readlink("/proc/self/fd/" + n).split(":")[0] for n in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + n)}
states = dict(line.split(":") for line in open("/proc/self/status") if line.startswith(("SigB", "SigI", "SigC")))
states["SigIgn"] = int(states["SigIgn"], 16) & ~(3 << 31)  # of the C library, for itself
print("SEEN", [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid(), links, states, os.getcwd(), sys.argv,
               sorted(k + "=" + v for k, v in os.environ.items() if k != "MEDUSA_WORKER_ENGINE")], flush=True)
''')
    command = f"{sys.executable} {folder}/see.py ${{PORT}}"
    ways = [see_as("see_off", command, {"cgroup": "off"}), see_as("see_auto", command, {})]
    check("it is seen", True, bool(ways[0]))
    check("a start in a cgroup is a start as ever", ways[0], ways[1])


def hostile_names():
    names = ["org/model.v1:q4", "../../etc/passwd", "..", "a.service", "ä\t", "x" * 255]
    d = Daemon(f"{folder}/names", config({name: plain(command=ENGINE) for name in names}))
    pids = [d.chat(name).json.get("pid") for name in names]
    check("each has a folder", sorted(folder_of(pid) for pid in pids), folders())
    check("with a plain name", True, all(re.fullmatch(r"medusa-[0-9a-f]{16}-[A-Za-z0-9_-]{1,40}-[0-9a-f]{1,16}", os.path.basename(path)) for path in folders()))
    end(d, *pids)
    check("all are gone", [], folders())


def killed_daemons():
    # Nobody comes.
    d = Daemon(f"{folder}/killed", config({"a": plain()}, {"adopt_time": "300ms"}))
    pid, stays = serve(d, "a")
    d.stop(signal.SIGKILL)
    until("the keeper has ended all", lambda: not lives(pid) and not lives(stays) and not folders() and keeper_of(d) is None)
    # A keeper that follows another one knows the cgroups.
    d = Daemon(d.folder, config({"a": plain()}, {"adopt_time": "300ms"}))
    pid, stays = serve(d, "a")
    last = keeper_of(d)
    os.kill(last, signal.SIGKILL)
    until("another keeper follows", lambda: keeper_of(d) not in (last, None))
    d.stop(signal.SIGKILL)
    until("it has ended all, too", lambda: not lives(pid) and not lives(stays) and not folders())
    # The engine ends while there is no daemon.
    d = Daemon(d.folder, config({"a": plain()}))
    pid, stays = serve(d, "a")
    d.stop(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    until("the keeper ends what it leaves", lambda: not lives(stays) and not folders())
    d = Daemon(d.folder, config({"a": plain()}))
    end(d)


def adopted():
    text = config({"a": plain(), "b": plain("b", ENGINE)})
    d = Daemon(f"{folder}/adopted", text)
    pid, stays = serve(d, "a")
    where = folder_of(pid)
    for turn in range(2):
        d.stop(signal.SIGKILL)
        d = Daemon(d.folder, text)
        check(f"turn {turn}: it is adopted with its cgroup", (pid, where, True), (d.chat("a").json.get("pid"), folder_of(pid), lives(stays)))
    check("unload", 0, d.ctl("unload", "a").returncode)
    check("all of it has ended", (False, False, []), (lives(pid), lives(stays), folders()))
    # Also by a daemon that makes none: the record says where it is.
    pid, stays = serve(d, "a")
    d.stop(signal.SIGKILL)
    d = Daemon(d.folder, config({"a": plain(), "b": plain("b", ENGINE)}, {"cgroup": "off"}))
    check("it is adopted", pid, d.chat("a").json.get("pid"))
    os.kill(keeper_of(d), signal.SIGSTOP)  # which knows it, too
    check("unload", 0, d.ctl("unload", "a").returncode)
    check("all of it has ended", (False, False, []), (lives(pid), lives(stays), folders()))
    os.kill(keeper_of(d), signal.SIGCONT)
    d.stop(signal.SIGKILL)
    d = Daemon(d.folder, text)
    # An engine of a daemon that makes none is adopted by one that does.
    pid, stays = serve(d, "a")
    d.stop(signal.SIGKILL)
    d = Daemon(d.folder, config({"a": plain(), "b": plain("b", ENGINE)}, {"cgroup": "off"}))
    check("it is adopted", pid, d.chat("a").json.get("pid"))
    other = d.chat("b").json.get("pid")
    d.stop(signal.SIGKILL)
    d = Daemon(d.folder, text)
    check("both are adopted", (pid, other), (d.chat("a").json.get("pid"), d.chat("b").json.get("pid")))
    # The model is gone: its engine is told to end, and what it leaves is killed.
    d.stop(signal.SIGKILL)
    d = Daemon(d.folder, config({"b": plain("b", ENGINE)}))
    until("all of it has ended", lambda: not lives(pid) and not lives(stays) and not folders())
    end(d, other)


def moved():
    """An engine that goes into a cgroup of its own making is adopted, and so is what it has left in the first one; folders of any depth go with it."""
    other = f"{top}/medusa-elsewhere"
    mover, text = f"{folder}/moves.py", config({"a": plain(command=f"{LEAVING}".replace(LEAVES, f"{folder}/moves.py")), "b": plain("b", ENGINE)})
    os.mkdir(other)
    with open(mover, "w", encoding="utf-8") as out:
        out.write(f'''
import os, runpy
here = "{mount}" + next(line[3:] for line in open("/proc/self/cgroup").read().split(chr(10)) if line.startswith("0::"))
os.chdir(here)
for level in range(60):
    os.mkdir(f"level{{level}}")
    os.chdir(f"level{{level}}")
os.mkdir("twin")
os.chdir("/")
source = open("{LEAVES}").read().split("runpy.run_path")[0]
exec(source)
open("{other}/cgroup.procs", "w").write("0")
runpy.run_path("{HERE}/engine.py", run_name="__main__")
''')
    d = Daemon(f"{folder}/moved", text)
    pid, stays = serve(d, "a")
    where = folder_of(stays)
    check("it has gone elsewhere", (other, True), (folder_of(pid), where in folders()))
    d.stop(signal.SIGKILL)
    d = Daemon(d.folder, text)
    check("it is adopted, and what it has left lives", (pid, True), (d.chat("a").json.get("pid"), lives(stays)))
    check("and it is said", True, "is not in the cgroup of its record, which ends with it all the same" in d.stderr())
    check("another model is served, which waits for what is cleared", 200, d.chat("b").status)
    check("it lives on", (pid, True), (d.chat("a").json.get("pid"), lives(stays)))
    check("unload", 0, d.ctl("unload", "a").returncode)
    check("all of it has ended, and its 60 levels of folders are gone", (False, False, False), (lives(pid), lives(stays), os.path.exists(where)))
    end(d)
    os.rmdir(other)


def reloaded():
    """A folder of no use is refused by a reload, and not first by the next start."""
    d = Daemon(f"{folder}/reloaded", config({"a": plain()}))
    pid, stays = serve(d, "a")
    for path, why in ((f"{folder}/nothing", "No such file or directory"), (folder, "no cgroup of version 2")):
        with open(f"{d.folder}/config.yaml", "w", encoding="utf-8") as out:
            out.write(config({"b": plain()}, {"cgroup": path}))
        done = d.ctl("reload")
        check(f"{path}: it is refused", (True, True), (done.returncode != 0, f"medusa.cgroup is {path}, where engines can have no cgroups: " in done.stderr and why in done.stderr))
        check("and nothing has changed", (pid, 404), (d.chat("a").json.get("pid"), d.chat("b").status))
    if whole:
        with open(f"{d.folder}/config.yaml", "w", encoding="utf-8") as out:
            out.write(config({"a": plain()}, {"cgroup": top}))
        done = d.ctl("reload")
        check("a folder that is of use is taken", (0, True), (done.returncode, "medusa.cgroup" in done.stdout + d.stderr().rsplit("the configuration was read anew", 1)[-1]))
        check("the probe has left nothing", [folder_of(pid)], folders())
    d.ctl("unload", "a")
    if lives(stays):
        os.kill(stays, signal.SIGKILL)
    end(d)


def spelled():
    """However the folder's path is written, the next daemon knows its cgroups again."""
    for number, path in enumerate((f"{top}/", f"{mount}/./{top[len(mount):]}")):
        text = config({"a": plain()}, {"cgroup": path})
        d = Daemon(f"{folder}/spelled{number}", text)
        pid, stays = serve(d, "a")
        d.stop(signal.SIGKILL)
        d = Daemon(d.folder, text)
        check(f"{path}: it is adopted with what it has", (pid, True), (d.chat("a").json.get("pid"), lives(stays)))
        end(d)


def records_lie():
    """A record that names another cgroup is not believed: the engine keeps its own, and the other one is nobody's to kill."""
    text = config({"a": plain()})
    d = Daemon(f"{folder}/lies", text)
    pid, stays = serve(d, "a")
    where = folder_of(pid)
    innocent = f"{top}/medusa-innocent"
    os.mkdir(innocent)
    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open(f"{innocent}/cgroup.procs", "w", encoding="utf-8") as file:
        file.write(str(sleeper.pid))
    for path, why in ((innocent, "is in"), ("/etc", "not a cgroup of an engine"), (f"{where}/../medusa-innocent", "is in")):
        d.stop(signal.SIGKILL)
        with open(records(d)[0], encoding="utf-8") as file:
            good = json.load(file)
        with open(records(d)[0], "w", encoding="utf-8") as file:
            json.dump({**good, "cgroup": path}, file)
        before = len(d.stderr())
        d = Daemon(d.folder, text)
        check(f"{path}: the engine is adopted", pid, d.chat("a").json.get("pid"))
        check("and it is said", True, "is not in the cgroup of its record" in d.stderr()[before:] and why in d.stderr()[before:])
    check("unload", 0, d.ctl("unload", "a").returncode)
    check("all of it has ended", (False, False, False), (lives(pid), lives(stays), os.path.exists(where)))
    check("the other cgroup is untouched", True, lives(sleeper.pid))
    end(d)
    sleeper.kill()
    sleeper.wait()
    os.rmdir(innocent)


def stale():
    """Folders of an earlier daemon in the same place; those of other daemons are theirs."""
    text = config({"a": plain(command=ENGINE)})
    d, twin = Daemon(f"{folder}/stale", text), Daemon(f"{folder}/twin", config({"a": plain(command=ENGINE)}).replace(str(first), str(first + 4)))
    pid, other = d.chat("a").json.get("pid"), twin.chat("a").json.get("pid")
    prefix = folder_of(pid).rsplit("-", 2)[0]
    end(d, pid)
    sleepers = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
    for name, sleeper in ((f"{prefix}-left-1", sleepers[0]), (f"{prefix}-below-2/inner", sleepers[1]), (f"{prefix}-empty-3/inner", None)):
        os.makedirs(name)
        if sleeper:
            with open(f"{name}/cgroup.procs", "w", encoding="utf-8") as file:
                file.write(str(sleeper.pid))
    d = Daemon(d.folder, text)
    for sleeper in sleepers:
        check("it was killed", -signal.SIGKILL, sleeper.wait(PATIENCE))
    until("the other daemon's alone is left", lambda: folders() == [folder_of(other)])
    check("it serves on", other, twin.chat("a").json.get("pid"))
    check("and so does this one", 200, d.chat("a").status)
    end(d)
    end(twin)


def swapped():
    """medusa-swap run and its engine are in one cgroup."""
    d = Daemon(f"{folder}/swapped", config({"m": {"cmd": f"{LEAVING} --name m --device-mb 4", "medusa": {"memory": "10MB"}}}))
    pid, stays = serve(d, "m")
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        parent = int(re.search(r"PPid:\s+(\d+)", file.read())[1])
    check("both, and what is left", [folder_of(pid)] * 2, [folder_of(parent), folder_of(stays)])
    check("it is not the daemon", True, parent != d.process.pid)
    end(d, pid, parent)
    check("nothing lives", (False, []), (lives(stays), folders()))


def forked():
    """An engine that a template forks is in a cgroup of its own, and the template is not."""
    command = LEAVING.replace(" -S ", " ")  # a template is a Python of its own, whose options are set
    model = {"cmd": f"{command} --name f", "medusa": {"memory": "10MB", "swap": "off", "template": "t"}}
    d = Daemon(f"{folder}/forked", config({"f": model, "g": plain(command=ENGINE)}, {"templates": {"t": {"cmd": f"{sys.executable} -m medusa.template json"}}}))
    until("the template is ready", lambda: glob.glob(f"{d.folder}/state/template~t.log") and "ready:" in open(f"{d.folder}/state/template~t.log", encoding="utf-8").read())
    pid, stays = serve(d, "f")
    check("the template has forked it", True, f"its engine is process {pid}, from template t" in d.stderr())
    check("a cgroup with both", [folder_of(pid)] * 2, [*folders(), folder_of(stays)])
    check("unload", 0, d.ctl("unload", "f").returncode)
    check("all of it has ended", (False, False, []), (lives(pid), lives(stays), folders()))
    end(d)


def given():
    """A folder that the configuration names."""
    os.mkdir(f"{top}/given")
    d = Daemon(f"{folder}/given", config({"a": plain()}, {"cgroup": f"{top}/given"}))
    pid, stays = serve(d, "a")
    check("its cgroup is in there", [folder_of(pid)], folders(f"{top}/given"))
    memory = re.findall(r'^medusa_worker_engine_memory_bytes\{model="a"\} (\d+)$', d.get("/metrics").body.decode(), re.M)
    counted = os.path.exists(f"{folder_of(pid)}/memory.current")
    check("memory, where it is counted", counted, len(memory) == 1 and int(memory[0]) > 0)
    model = next(m for m in d.tell("models")["models"] if m["model"] == "a")
    print("memory of engines is counted here" if counted else "skipped: memory of engines (the memory controller is not there)")
    check("the same of medusa-workerctl", counted, isinstance(model["host_memory_bytes"], int))
    end(d, pid)
    check("nothing lives", (False, []), (lives(stays), folders(f"{top}/given")))
    os.rmdir(f"{top}/given")


def other_user():
    """A user who may make none: auto serves without, and a path is refused."""
    try:
        nobody = pwd.getpwnam("nobody")
        place = tempfile.mkdtemp(prefix="medusa-nobody.")
        atexit.register(shutil.rmtree, place, ignore_errors=True)
    except (KeyError, OSError) as why:
        print(f"skipped: another user ({why})")
        return
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    try:
        if os.geteuid() or subprocess.run(["medusa-worker", "--version"], capture_output=True, check=False, cwd="/", **user).returncode:
            raise PermissionError("nobody cannot run medusa-worker here")
    except OSError as why:
        print(f"skipped: another user ({why})")
        return
    global folder
    before, folder = folder, place
    os.chmod(place, 0o755)
    refused(top, "Permission denied", cwd="/", **user)
    folder = before
    with open(f"{place}/auto.yaml", "w", encoding="utf-8") as out:
        out.write(config({}))
    with subprocess.Popen(["medusa-worker", "--config", f"{place}/auto.yaml", "--listen", "127.0.0.1:0", "--state", f"{place}/state", "--control", f"{place}/control"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", **user) as process:
        check("it serves", True, process.stdout.readline().startswith("listening on "))
        process.terminate()
        said = process.communicate(timeout=PATIENCE)[1]
    check("and says why without", 1, len(re.findall("engines have no cgroups of their own, and are known by their process groups: .*Permission denied", said)))


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also a test whose time is over leaves no cgroup
if whole:
    try:
        for part in (engines, unkillable, same_start, hostile_names, killed_daemons, adopted, moved, reloaded, spelled, records_lie, stale, swapped, forked, given, other_user):
            part()
    finally:
        clean()
    finish()
if base:
    clean()
reloaded()
try:
    finish()
except SystemExit as done:
    print(f"no cgroup can be made here: {reason}")
    sys.exit(done.code or 77)
