# SPDX-License-Identifier: Apache-2.0
"""What must never hurt vLLM: each case disturbs restored engines, and their answers are those of a live engine in the same case.

    [CASES="dense killed ..."] [JOBS=8] python3 tests/gpu/vllm_hurt.py --cache FOLDER --out FOLDER

Engines start side by side in processes of their own (vllm_hurt_engine.py, vllm_hurt_server.py), each of them once for all cases that
need it. Answers are compared when the compiled model has taken over, or with MEDUSA_VLLM_PREFILL=compiled: then all kernels
are those of a live engine. Before that, prefills run eagerly and round otherwise, so it is only said how many answers are the same.
One line for each case, and FOLDER/hurt.json; artifacts in FOLDER are used if they are there.
"""
import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import vllm_engine
import vllm_hurt_server

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = {"kv_cache_memory_bytes": 512 << 20}  # vLLM's own measuring fails if another process frees memory meanwhile
COMPILED = {"MEDUSA_VLLM_PREFILL": "compiled", "MEDUSA_VLLM_TAKEOVER": "0"}
FEW = "prompts singles chunked_prefill preemption"
DEADLINE_S = float(os.environ.get("DEADLINE", "540"))  # seconds after which nothing starts any more
HELD_MIB = 24 << 10
START_S, CAPTURE_S = 150, 300  # limits of one process; cold caches take most of them


class Result:
    """One process that has ended."""

    def __init__(self, name, code, seconds, said, report):
        self.name, self.code, self.seconds, self.said, self.report = name, code, seconds, said, report

    def graphs(self):
        """(restored, all) of the first engine in this process."""
        found = re.search(r"medusa: (\d+) of (\d+) full graphs restored", self.said)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def reason(self):
        """Why graphs were captured live, in the plug-in's words; "" if it names none."""
        found = re.search(r"medusa: (?:all graphs are captured live: |vLLM is left as it is: |graph \S+ .*captured live: |no graph is restored or recorded: )(.*)", self.said)
        return found[1].strip() if found else ""

    def trouble(self):
        """What the process ended with; "" if it ended well."""
        if self.code == 0:
            return ""
        lines = [re.sub(r"^(\(\w+ pid=\d+\) |\[rank\d+\]: )+", "", line) for line in self.said.splitlines()]
        errors = [line for line in lines if re.match(r"failure: |[\w.]*(Error|Exception|Problem)\b", line)]
        return f"{self.name} ended with {self.code}: {(errors or lines or ['it said nothing'])[-1][:200]}"


class Failed(Exception):
    """The verdict on a case; str() says what was seen."""


class Skipped(Exception):
    """A case that shows nothing here; str() says why."""


class Starts:
    """Processes by name, each of them started when the first case needs it."""

    def __init__(self, cache, out):
        self.cache, self.out, self.began = cache, out, time.monotonic()
        self._places = threading.Semaphore(int(os.environ.get("JOBS") or max(2, min(8, (os.cpu_count() or 4) // 2))))
        self._lock, self._made = threading.Lock(), {}

    def once(self, name, make):
        """make() of the first caller, for all callers of this name; its exception, too."""
        with self._lock:
            lock, box = self._made.setdefault(name, (threading.Lock(), []))
        with lock:
            if not box:
                try:
                    box.append((make(), None))
                except Failed as error:
                    box.append((None, error))
            value, error = box[0]
        if error is not None:
            raise error
        return value

    def run(self, name, command, limit, environment=None, report=None):
        """Runs a command; its output goes to FOLDER/hurt-NAME.log."""
        left = DEADLINE_S - (time.monotonic() - self.began)
        with self._places:
            if left < 20:
                raise Failed(f"{name} was not started, because {DEADLINE_S:.0f} s are over (DEADLINE)")
            began = time.monotonic()
            process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace")
            try:
                said, _ = process.communicate(timeout=min(limit, left))
                code = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said, code = process.communicate()[0], f"no answer in {min(limit, left):.0f} s"
            seconds = time.monotonic() - began
        with open(os.path.join(self.out, f"hurt-{name}.log"), "w", encoding="utf-8") as file:
            file.write(said)
        read = {}
        if report and code == 0:
            with open(report, encoding="utf-8") as file:
                read = json.load(file)
        return Result(name, code, seconds, said, read)

    # ---- engines ----

    def _report(self, name):
        path = os.path.join(self.out, f"hurt-{name}.json")
        if os.path.exists(path):
            os.unlink(path)
        return path

    def command(self, *words, model="dense", settings=None):
        return [sys.executable, os.path.join(HERE, "vllm_hurt_engine.py"), "--cache", self.cache, "--model", model, "--settings",
                json.dumps(settings or {}), *words]

    def artifact(self, name):
        return os.path.join(self.out, f"hurt-{name}.medusa")

    def capture(self, name, command, environment=None):
        """The path of an artifact, captured by the first case that needs it."""
        def make():
            if not os.path.exists(self.artifact(name)):
                result = self.run(f"{name}-capture", ["medusa-capture", "-o", self.artifact(name), "--", *command], CAPTURE_S, environment)
                # It ends with 1 if it has left graphs out of the artifact; a restored engine captures them live, and says so.
                if not os.path.exists(self.artifact(name)) or result.code not in (0, 1):
                    raise Failed(result.trouble() or f"{result.name} made no artifact")
            return self.artifact(name)

        return self.once(f"{name}-capture", make)

    def engine(self, name, *words, artifact=None, model="dense", settings=None, environment=None, groups=FEW):
        """An engine of this name that is asked; restored from an artifact, or live."""
        def make():
            report = self._report(name)
            command = self.command("--groups", groups, "--out", report, *words, model=model, settings=settings)
            result = self.run(name, [*(["medusa-restore", artifact, "--"] if artifact else []), *command], START_S, environment, report)
            if result.trouble():
                raise Failed(result.trouble())
            return result

        return self.once(name, make)


# ---- comparisons ----


def same(live, restored, where=""):
    """How many answers there are if all are the same and right; else Failed. live, restored: tokens by group."""
    count = 0
    for group, expected in live.items():
        got = restored.get(group, {"problem": "it was not asked"})
        for whose, answers in (("live", expected), ("restored", got)):
            if isinstance(answers, dict):
                raise Failed(f"{where}{group}, {whose}: {answers['problem']}")
        bad = [at for at, (one, other) in enumerate(zip(expected, got)) if one != other]
        if bad or len(got) != len(expected):
            one, other = expected[bad[0]], got[bad[0]]
            first = next((at for at, (left, right) in enumerate(zip(one, other)) if left != right), min(len(one), len(other)))
            raise Failed(f"{where}{group}: {len(bad)} of {len(expected)} answers are not as live; answer {bad[0]} from token {first} of {len(one)} on")
        count += len(expected)
    return count


def alike(live, other):
    """(equal answers, all answers) of those groups that have answers in both."""
    pairs = [pair for group in live if isinstance(live[group], list) and isinstance(other.get(group), list) for pair in zip(live[group], other[group])]
    return sum(one == two for one, two in pairs), len(pairs)


def judge(live, restored, expected):
    """The text of a case that passed; expected: "all" graphs are restored, or "none" with a reason, or "any": all or a reason."""
    count = same(live.report["answers"], restored.report["answers"])
    got, of = restored.graphs()
    how = f"{got} of {of} graphs restored" if of else "no graph restored"
    if expected == "all" and (not got or got < of):
        raise Failed(f"{how}: {restored.reason() or 'the log names no reason'}")
    if expected == "none" and got:
        raise Failed(f"{how}, although the artifact is of another engine")
    if (not got or got < of) and not restored.reason():
        raise Failed(f"{how}, and the log names no reason")
    return f"{count} answers as live; {how}{': ' + restored.reason()[:110] if restored.reason() else ''}"


# ---- cases ----

CASES = {}
LAST = ("memory_gone", "memory_little")  # they take the whole device


def case(function):
    CASES[function.__name__] = function
    return function


def dense(starts):
    return starts.capture("dense", starts.command())


def live(starts):
    return starts.engine("live", settings=BYTES, groups=" ".join(ALL))


ALL = ("prompts", "singles", "shapes", "prefix_caching", "chunked_prefill", "preemption", "structured_output", "sampled", "abort", "bad_request")


def every_group(starts, name, expected, got):
    """Each group is a case of its own, named NAME/GROUP."""
    early = got.report.get("early", {})
    for group in expected.report["answers"]:
        try:
            count = same({group: expected.report["answers"][group]}, got.report["answers"])
            if isinstance(early.get(group), dict):
                raise Failed(f"before the compiled model took over: {early[group]['problem']}")
            text = f"{count} answers as live"
            if early:
                text += "; {} of {} before the compiled model took over".format(*alike({group: expected.report["answers"][group]}, early))
            tell(f"{name}/{group}", True, text, starts)
        except Failed as failed:
            tell(f"{name}/{group}", False, str(failed), starts)


def own_artifact(starts, name, model, settings):
    """A configuration with an artifact of its own: all groups, before and after the compiled model takes over."""
    artifact = starts.capture(name, starts.command(model=model, settings={**BYTES, **settings}))
    groups = " ".join(ALL)
    with ThreadPoolExecutor(2) as pool:
        alone = pool.submit(starts.engine, f"{name}-live", model=model, settings={**BYTES, **settings}, groups=groups)
        restored = pool.submit(starts.engine, f"{name}-restored", artifact=artifact, model=model, settings={**BYTES, **settings}, groups=groups)
        every_group(starts, name, alone.result(), restored.result())
    return judge(alone.result(), restored.result(), "all")


@case
def serve(starts):
    """Adapters are loaded and unloaded, clients hang up, the engine core is killed, and the server starts again."""
    script = [sys.executable, os.path.join(HERE, "vllm_hurt_server.py"), "--cache", starts.cache]
    words = vllm_hurt_server.command(starts.cache)
    artifact = starts.capture("serve", words, vllm_hurt_server.ENVIRONMENT)
    paths = [starts._report(name) for name in ("serve-live", "serve-restored")]
    with ThreadPoolExecutor(2) as pool:
        alone = pool.submit(starts.run, "serve-live", [*script, "--out", paths[0]], START_S, None, paths[0])
        restored = starts.run("serve-restored", [*script, "--out", paths[1], "--", "medusa-restore", artifact, "--"], START_S + 60, None, paths[1])
    for result in (alone.result(), restored):
        if result.trouble():
            raise Failed(result.trouble())
    expected, got = alone.result().report["answers"], restored.report
    count = same({"base": expected["base"], "base again": expected["base again"]}, got["answers"])
    same({"base": expected["base"]}, {"base": got["again"]}, "after the core was killed: ")
    if got["left"]:
        raise Failed(f"processes stay when the server has ended: {got['left']}")
    adapters = {name: expected[name] for name in ("a1", "a2", "a3")}
    # vLLM's kernel for adapters adds partial sums in an order that differs each time.
    near, of = near_enough(adapters, got["answers"])
    other, _ = near_enough(adapters, {name: got["answers"]["base"] for name in adapters})
    if near < of * 3 // 4 or other > of // 4:
        raise Failed(f"{near} of {of} answers of adapters begin as live, {other} as without an adapter")
    done, all_graphs = restored.graphs()
    # Graphs with adapters may be left out of the artifact as nondeterministic; the others must be restored.
    if done * 2 < all_graphs or not done or (done < all_graphs and ".lora" not in restored.said):
        raise Failed(f"{done} of {all_graphs} graphs restored: {restored.reason()}")
    left_out = f" (live: {restored.reason()[:70]})" if done < all_graphs else ""
    return (f"{count} answers as live, {near} of {of} of adapters begin as live; {done} of {all_graphs} graphs restored{left_out}; a killed core "
            f"ends the server with {got['killed']}")


def near_enough(expected, got):
    """(answers whose first four tokens are the same, answers)"""
    pairs = [pair for name in expected for pair in zip(expected[name], got[name])]
    return sum(one[:4] == two[:4] for one, two in pairs), len(pairs)


@case
def fp8(starts):
    """Weights are quantized online."""
    return own_artifact(starts, "fp8", "dense", {"quantization": "fp8"})


@case
def moe(starts):
    """A mixture of experts, which runs on vLLM's first model runner."""
    return own_artifact(starts, "moe", "moe", {})


@case
def engine(starts):
    """The artifact's own configuration, asked at once while the compiled model takes over, and again when it has."""
    restored = starts.engine("restored", "--early", artifact=dense(starts), groups=" ".join(ALL), environment={"MEDUSA_VLLM_TAKEOVER_AFTER": "0"})
    every_group(starts, "engine", live(starts), restored)
    return judge(live(starts), restored, "all")


def other(name, expected, model="dense", settings=None, environment=None, groups=FEW):
    """A case in which the engine is another one than that of the artifact."""
    def run(starts):
        artifact = dense(starts)
        with ThreadPoolExecutor(2) as pool:
            given = {"model": model, "settings": {**BYTES, **(settings or {})}, "environment": environment, "groups": groups}
            restored = pool.submit(starts.engine, name, artifact=artifact, **given)
            alone = pool.submit(starts.engine, f"{name}-live", **given)
            return judge(alone.result(), restored.result(), expected)

    CASES[name] = run


other("batch_list", "any", settings={"compilation_config": {"cudagraph_capture_sizes": [1, 2, 3, 6, 12]}})
other("block_size", "none", settings={"block_size": 32}, groups="prompts singles chunked_prefill")  # its cache is too large for a preemption
other("fewer_sequences", "none", settings={"max_num_seqs": 8}, groups="prompts singles chunked_prefill")
other("model_length", "none", settings={"max_model_len": 512}, groups="prompts singles preemption")
other("fp8_foreign", "none", settings={"quantization": "fp8"})
other("kv_fp8", "none", settings={"kv_cache_dtype": "fp8"})
other("fewer_blocks", "none", settings={"num_gpu_blocks_override": 80})
other("no_graphs", "none", settings={"enforce_eager": True})
other("attention", "none", settings={"attention_backend": "TRITON_ATTN"})
other("environment", "none", environment={"VLLM_BATCH_INVARIANT": "1"})
other("first_runner", "none", environment={"VLLM_USE_V2_MODEL_RUNNER": "0"})
other("foreign", "none", model="moe")


def broken(name, change):
    """A case with a damaged copy of the artifact."""
    def run(starts):
        with open(dense(starts), "rb") as file:
            data = bytearray(file.read())
        path = starts.artifact(name)
        with open(path, "wb") as file:
            file.write(change(data))
        return judge(live_part(starts), starts.engine(name, artifact=path, settings=BYTES), "any")

    CASES[name] = run


def live_part(starts):
    """The live engine, of which only the groups of FEW are looked at."""
    whole = live(starts)
    answers = {group: whole.report["answers"][group] for group in FEW.split()}
    return Result(whole.name, whole.code, whole.seconds, whole.said, {**whole.report, "answers": answers})


def flipped(data):
    data[len(data) // 2] ^= 0x10
    return data


broken("cut_short", lambda data: data[:len(data) // 2])
broken("flipped_bit", flipped)
broken("empty", lambda data: b"")


@case
def version(starts):
    """A version of vLLM with which the plug-in was never tried."""
    return judge(live_part(starts), starts.engine("version", "--version", "0.27.0", artifact=dense(starts), settings=BYTES), "none")


def singles(starts):
    part = live_part(starts)
    part.report["answers"] = {"singles": part.report["answers"]["singles"]}
    return part


@case
def killed(starts):
    """The engine core is killed; the same process makes another engine."""
    got = starts.engine("killed", "--own-core", "--kill", artifact=dense(starts), environment=COMPILED, groups="singles")
    text = judge(singles(starts), got, "all")
    if got.said.count("full graphs restored") != 2:
        raise Failed(f"{got.said.count('full graphs restored')} of 2 engines were restored")
    return f"{text}; vLLM raised {got.report['raised']}, and the second engine was restored"


@case
def two_engines(starts):
    """Two engines of one process on one GPU, each with an engine core."""
    got = starts.engine("two_engines", "--own-core", "--pair", artifact=dense(starts), environment=COMPILED, groups="singles")
    expected = singles(starts)
    for which in ("other", "other_again"):
        same(expected.report["answers"], got.report[which], f"the second engine ({which}): ")
    if got.said.count("full graphs restored") != 2:
        raise Failed(f"{got.said.count('full graphs restored')} of 2 engines were restored")
    return judge(expected, got, "all") + ", of both engines"


@case
def again(starts):
    """An engine is dropped, and another one is made in the same process: its memory must be free, and its graphs are made live."""
    with ThreadPoolExecutor(2) as pool:
        restored = pool.submit(starts.engine, "again", "--again", artifact=dense(starts), groups="singles")
        try:
            alone = starts.engine("again-live", "--again", settings=BYTES, groups="singles")
        except Failed as failed:  # PyTorch may refuse the graph pool that vLLM kept from the first engine
            restored.exception()
            raise Skipped(f"vLLM without Medusa cannot do it, so there is nothing to compare with: {failed}") from failed
        got = restored.result()
    same(alone.report["answers"], {"singles": got.report["second"]["singles"]}, "the second engine: ")
    if got.report["held"] > alone.report["held"] + (1 << 20):
        raise Failed(f"{got.report['held']} bytes stay in use when the first engine has ended, live {alone.report['held']}")
    return judge(alone, got, "all") + f"; {got.report['held']} bytes stayed in use (live {alone.report['held']})"


@case
def full_disk(starts):
    """No file can grow any more; the caches of compilers are warm."""
    expected = live_part(starts)
    try:
        return judge(expected, starts.engine("full_disk", "--full-disk", artifact=dense(starts), environment=COMPILED), "all")
    except Failed as failed:
        try:
            starts.engine("full_disk-live", "--full-disk", settings=BYTES)
        except Failed as also:
            return f"a live engine does not start, either: {also}; restored: {failed}"
        raise


def memory(name, left, expected, text):
    def run(starts):
        got = starts.engine(name, "--left", str(left), artifact=dense(starts))
        free = re.search(r"the device's memory; (-?\d+) MiB are free", got.said)
        if not free or not 0 <= int(free[1]) <= left + 192:
            raise Failed(f"another process should have left {left} MiB: {free[0] if free else 'it never held the memory'}")
        return judge(live_part(starts), got, expected) + f"; {free[1]} MiB were free"

    run.__doc__ = text
    CASES[name] = run


memory("memory_gone", 8, "any", "Another process holds nearly all memory while graphs are restored.")
memory("memory_little", 512, "all", "Another process leaves 512 MiB while graphs are restored.")


# ---- all of it ----

verdicts, printing = [], threading.Lock()


def tell(name, passed, text, starts):
    """passed: None if the case was skipped."""
    with printing:
        seconds = time.monotonic() - starts.began
        verdicts.append({"case": name, "passed": passed, "said": text, "at": round(seconds, 1)})
        print(f"  {'skip' if passed is None else 'pass' if passed else 'FAIL'}  hurt/{name:<24} {seconds:4.0f} s  {text}"[:260], flush=True)


def try_case(name, starts):
    try:
        tell(name, True, CASES[name](starts), starts)
    except Failed as failed:
        tell(name, False, str(failed), starts)
    except Skipped as skipped:
        tell(name, None, str(skipped), starts)
    except Exception as error:  # of this script: a case that comes to no verdict has failed
        tell(name, False, f"{type(error).__name__}: {error}", starts)


@contextlib.contextmanager
def held(starts):
    """A part of the device's memory, which the engines that run side by side will take."""
    process = subprocess.Popen(starts.command("--hold", str(HELD_MIB)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print(f"  {process.stdout.readline().strip()}", flush=True)
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    cache, out = os.path.abspath(options.cache), os.path.abspath(options.out)
    vllm_engine.environment(argparse.Namespace(cache=cache, in_process=False, runner=None))
    os.makedirs(out, exist_ok=True)
    starts = Starts(cache, out)
    wanted = os.environ.get("CASES", "").split() or list(CASES)
    for name in wanted:
        if name not in CASES:
            parser.error(f"there is no case {name}; cases: {' '.join(CASES)}")
    made = starts.run("make", [sys.executable, os.path.join(HERE, "vllm_hurt_engine.py"), "--cache", cache, "--make"], START_S)
    if made.trouble():
        tell("make", False, made.trouble(), starts)
        return 1
    # Alone, because vLLM measures the free memory in it. A restored engine takes that number if at least as much is free as there was.
    with held(starts):
        try:
            dense(starts)
        except Failed as failed:
            tell("capture", False, str(failed), starts)
    threads = [threading.Thread(target=try_case, args=(name, starts)) for name in wanted if name not in LAST]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in (name for name in wanted if name in LAST):
        try_case(name, starts)
    passed, failed = (sum(verdict["passed"] is kind for verdict in verdicts) for kind in (True, False))
    with open(os.path.join(out, "hurt.json"), "w", encoding="utf-8") as file:
        json.dump({"cases": verdicts, "seconds": round(time.monotonic() - starts.began, 1)}, file, indent=1)
    print(f"tests/gpu/vllm_hurt: {passed} passed, {failed} failed, {len(verdicts) - passed - failed} skipped in {time.monotonic() - starts.began:.0f} s; logs in {out}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
