# SPDX-License-Identifier: Apache-2.0
"""The reports of vllm_engine.py in one folder as a table, and whether restored engines answer as the live one does.

    python3 tests/gpu/vllm_table.py FOLDER [FOLDER...]

Each FOLDER is what one call of vllm.sh left: NAME.json of each start, and NAME.log and NAME.err.
"""
import json
import os
import re
import sys

STAGES = ("import_torch", "import_vllm", "init_device", "load_model", "determine_available_memory", "profile_run",
          "profile_cudagraph_memory", "initialize_from_config", "compile_or_warm_up_model", "capture_model", "template", "engine", "engine_again",
          "first_token", "takeover", "all_answers")
LIVE = {"serve": "serve_live", "serve_spawn": "serve_live", "template": "serve_live", "pieces": "pieces_live",
        "pieces_takeover": "pieces_live"}  # compared with these, and all others with "live"
AGAIN = "live_again"
ORDER = ("live", AGAIN, "restore", "takeover", "compiled", "spawn", "in_process", "travel", "serve_live", "serve", "serve_spawn", "template",
         "pieces_live", "pieces", "pieces_takeover")
LARGEST_PIECE = 512  # tokens
SLEEPS = {"sleep_cumem": "cumem", "sleep_medusa": "medusa_vllm.sleep", "sleep_restore": "medusa_vllm.sleep", "sleep_serve": "vllm serve"}  # backends


def load(folder):
    found = {}
    for name in ORDER:
        path = os.path.join(folder, name + ".json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found[name] = json.load(file)
    return found


def restored(folder, name):
    """(restored, all) as the plug-in logged it, in whichever process it was."""
    for ending in (".err", ".log"):
        path = os.path.join(folder, name + ending)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                found = re.findall(r"medusa: (\d+) of (\d+) full graphs restored", file.read())
            if found:
                return tuple(map(int, found[-1]))
    return 0, 0


def common(one, other):
    """Tokens that two answers begin with alike."""
    return next((at for at, (left, right) in enumerate(zip(one, other)) if left != right), min(len(one), len(other)))


def line(name, values, form):
    print(f"{name:28}" + "".join(form.format(value) if value is not None else f"{'-':>12}" for value in values))


def compare(folder, name, report, live, varies):
    """Prints one line; True if it is not as it must be. varies: live engines differ among themselves."""
    pairs = list(zip(live["tokens"], report["tokens"]))
    same = sum(one == other for one, other in pairs)
    alike, everything = sum(common(one, other) for one, other in pairs), sum(len(one) for one, _ in pairs)
    got, of = restored(folder, name)
    graphs = "" if name == AGAIN else f"{got} of {of} graphs restored; "
    print(f"{name}: {graphs}{same} of {len(pairs)} answers as live, {alike} of {everything} tokens before the first difference")
    if live.get("logprobs") and report.get("logprobs"):
        numbers = [pair for one, other in zip(live["logprobs"], report["logprobs"]) for pair in zip(one, other)]
        firsts = [(one[0], other[0]) for one, other in zip(live["logprobs"], report["logprobs"])]
        print(f"{name}: {sum(a == b for a, b in numbers)} of {len(numbers)} log-probabilities as live, "
              f"{sum(a == b for a, b in firsts)} of {len(firsts)} first ones")
    if name == AGAIN:
        return False
    # With compiled prefills the same kernels run, so the answers must be the same.
    compiled = name in ("compiled", "takeover") or (
        name.startswith("pieces") and report["extra"].get("max_num_batched_tokens", LARGEST_PIECE + 1) <= LARGEST_PIECE)
    return not got or got < of or (compiled and same < len(pairs) and not varies)


def sleeps(folder):
    """Prints vllm_sleep.py's reports; True if one is not as it must be, None if there is none."""
    bad, answers = None, {}
    for name, backend in SLEEPS.items():
        path = os.path.join(folder, name + ".json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        bad, answers[name] = bool(bad) | bool(report["failed"]), report["answers"]
        if backend not in report["backend"] and (backend, report["backend"]) != ("cumem", "vllm.device_allocator.sleep_mode_backend"):
            print(f"{name}: the backend was {report['backend']}, not {backend}")
            bad = True
        for at in report.get("flights", []):
            print(f"{name:14} out {at['out_ms']:8.1f} ms ({at['bytes'] / 1e9:.1f} GB, {at['copied'] / 1e9:.1f} copied, {at['stays_mib']} MiB stay), in "
                  f"{at['in_ms']:8.1f} ms, first token {at['first_token_ms']} ms after it began")
        for at in report["rounds"]:
            print(f"{name:14} level {at['level']}: sleep {at['sleep_ms']:8.1f} ms, {at['stays_mib']} MiB stay, wake {at['wake_ms']:8.1f} ms, first token "
                  f"{at['first_token_ms']:.1f} ms after it")
    if len({json.dumps(answers[name]) for name in ("sleep_cumem", "sleep_medusa") if name in answers}) > 1:
        print("sleep_medusa: the answers are not those of sleep_cumem")
        bad = True
    return bad


def table(folder):
    reports, slept = load(folder), sleeps(folder)
    if not reports and slept is None:
        print(f"{folder}: no reports")
        return True
    return bool(slept) | (compared(folder, reports) if reports else False)


def compared(folder, reports):
    first = next(iter(reports.values()))
    print(f"{first['shape']}, runner {first['runner']}{', LoRA' if first['lora'] else ''}; seconds, ms and tokens a second")
    line("", reports, "{:>12}")
    for stage in STAGES:
        values = [report["seconds"].get(stage) for report in reports.values()]
        if any(value is not None for value in values):
            line(stage, values, "{:12.3f}")
    for rate in first["rates"]:
        line(rate, [report["rates"].get(rate) for report in reports.values()], "{:12.3f}")
    bad, varies = False, AGAIN in reports and reports[AGAIN]["tokens"] != reports.get("live", reports[AGAIN])["tokens"]
    for name, report in reports.items():
        live = reports.get(LIVE.get(name, "live"))
        if live is not None and live is not report and name not in LIVE.values():
            bad |= compare(folder, name, report, live, varies)
    return bad


def main():
    return int(any([table(folder) for folder in sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
