#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# vLLM on a real GPU: captured, verified, restored in a fresh process; answers and times beside those of vLLM alone.
#
#	[STEPS="capture live restore ..."] tests/gpu/vllm.sh [ARGUMENT of vllm_engine.py...]
#
# STEPS: capture, live, restore (eager prefills throughout), takeover (asked when the compiled model has taken over), compiled
# (prefills by it from the start), live_again (shows how much the answers of a live engine differ from start to start), verify, multiprocess (an engine core that is spawned, captured and restored, and one in the process of its caller), travel (caches
# in the artifact, restored where there are none),
# serve (vllm serve until /health answers: live, restored with a core that was forked, and with one that is spawned), template (the
# same twice from a template), pieces (captured and restored with vLLM's pieces, so that prefills are compiled from the first request on; batches
# of at most 512 tokens, as many as the largest piece has, unless PIECES_EXTRA gives other arguments of LLM(), as JSON),
# pieces_takeover (the artifact of pieces, and the compiled model takes over), pieces_verify, hurt (what must never hurt: vllm_hurt.py,
# with artifacts of its own; CASES picks some of its cases), sleep (levels 1 and 2, by vLLM's own allocator and
# by medusa-swap), sleep_serve (medusa-swap out and in of vllm serve with requests in flight, and its /sleep), sleep_restore (as sleep, with the
# restored graphs of capture); SLEEP_POOL is the size of their pool, ROUNDS how often each sleeps. The first five by default; those that restore need the artifact of capture, which KEEP=1 keeps from an
# earlier call, with its reports. CACHE, a folder, holds the caches of vLLM, Inductor and Triton (default: one of its own, cold at
# first). OUT, a folder, gets logs and reports. PYTHON names the interpreter, in which vLLM, models/torch and models/vllm are
# installed. WORK: the folder in which it works; a second run at the same time needs one of its own, and a PORT for its servers. LIMIT: seconds that a capture, or verify, may take. CAPTURE_OPTIONS: more options of medusa-capture, for the step capture.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/e2e/device.sh
python=${PYTHON:-python3} out=${WORK:-$PWD/$build/tests/gpu/vllm} failures=0
if [ "$MEDUSA_DEVICE" != gpu ]; then
	echo "tests/gpu/vllm: skipped: no NVIDIA GPU with a driver on this machine"
	exit 77
fi
if ! "$python" -c 'import importlib.metadata as m, importlib.util as u, sys
sys.exit(not (u.find_spec("vllm") and u.find_spec("medusa") and any(p.name == "medusa" for p in m.entry_points(group="vllm.general_plugins"))))'; then
	echo "tests/gpu/vllm: skipped: vLLM, models/torch or models/vllm is not installed (by pip: vLLM finds the plug-in by its entry point)"
	exit 77
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
exec 9>"$out.lock"
if ! flock -n 9; then # it would lose its traces, logs and caches
	echo "tests/gpu/vllm: another run works in $out: give this one another folder (WORK) and another PORT"
	exit 1
fi
[ -n "${KEEP:-}" ] || rm -rf "$out"
mkdir -p "$out"
PATH=$PWD/$build/bin:$PATH
# Else a Python whose packages' folders cannot be written compiles all of them in each start.
export PYTHONPYCACHEPREFIX=${CACHE:-$out/cache}/python
unset PYTHONDONTWRITEBYTECODE
# Where the packages lie in PYTHONPATH, Python does not read their .pth files.
if ! LD_PRELOAD=libmedusa-none.so "$python" -c 'import sys; sys.exit("medusa_vllm" not in sys.modules)' 2>/dev/null; then
	mkdir -p "$out/start"
	"$python" -c 'import os, medusa, medusa_vllm
print("import site")
for module in medusa, medusa_vllm:
    print(f"site.addsitedir({os.path.dirname(os.path.dirname(os.path.abspath(module.__file__)))!r})")' >"$out/start/sitecustomize.py"
	export PYTHONPATH=$out/start${PYTHONPATH:+:$PYTHONPATH}
fi
engine=("$python" tests/gpu/vllm_engine.py --cache "${CACHE:-$out/cache}" "$@")
# On processors of their own, because a step's time depends on which ones it runs on.
steps=(taskset -c "${PROCESSORS:-0-7}" "$python" tests/gpu/vllm_steps.py --cache "${CACHE:-$out/cache}" "$@")
sleeper=("$python" tests/gpu/vllm_sleep.py --rounds "${ROUNDS:-3}" --cache "${CACHE:-$out/cache}" "$@")
swapped=(medusa-swap run --name vllm --pool-bytes "${SLEEP_POOL:-24G}")
small='{"max_num_batched_tokens": 512}'
pieces=("${engine[@]}" --extra "${PIECES_EXTRA:-$small}")
printf '%s; %s; %s; commit %s\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" \
	"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)" \
	"$("$python" -c 'import torch, importlib.metadata as m; print(f"PyTorch {torch.__version__}, vLLM {m.version(chr(118) + "llm")}")' 2>/dev/null)" \
	"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}"

run() { # name, seconds, command...
	local name=$1 limit=$2 start=$SECONDS code=0
	shift 2
	rm -f "$out/$name.json"
	timeout --kill-after=10 "$limit" "$@" 9>&- >"$out/$name.log" 2>"$out/$name.err" || code=$?
	[ $code = 0 ] || failures=$((failures + 1))
	printf '  %s  %-13s %3d s  %s\n' "$([ $code = 0 ] && echo pass || echo FAIL)" "$name" $((SECONDS - start)) \
		"exit $code; $(grep -hE 'medusa-(capture|verify): (verification|.* graphs, .* nodes)|[0-9]+ passed, |full graphs restored' "$out/$name.err" "$out/$name.log" | tail -n 1)"
}
restore() { # name, artifact, arguments of the engine...
	if [ ! -e "$2" ]; then
		echo "  FAIL  $1: there is no ${2##*/}, because its capture failed; its reason is at the end of $out/*capture.err"
		failures=$((failures + 1))
		return
	fi
	run "$1" 300 medusa-restore "$2" -- "${engine[@]}" --out "$out/$1.json" "${@:3}"
}
said() { # names of runs: what the plug-in has logged of pieces
	for name in "$@"; do
		grep -hE "medusa: .*(pieces|eagerly|captured live|taken over)" "$out/$name.log" "$out/$name.err" | sed "s/^.*medusa: /    $name: /" | sort | uniq -c
	done
}
checks() { # what the last of these runs has found
	grep -h '^  \(pass\|FAIL\)  ' "$out/$1.log" | sed 's/^/    /'
	grep -hE "medusa: (medusa-swap puts|sleep mode is left)" "$out/$1.log" "$out/$1.err" | sed 's/^.*medusa: /    /' | sort -u
}
for step in ${STEPS:-capture live restore takeover compiled}; do
	case $step in
	capture) run capture "${LIMIT:-500}" medusa-capture ${CAPTURE_OPTIONS:-} -o "$out/engine.medusa" -- "${engine[@]}" ;;
	live) run live 300 "${engine[@]}" --out "$out/live.json" ;;
	live_again) run live_again 300 "${engine[@]}" --out "$out/live_again.json" ;;
	restore) MEDUSA_VLLM_TAKEOVER=0 restore restore "$out/engine.medusa" ;;
	takeover)
		restore takeover "$out/engine.medusa" --wait 60
		grep -h "medusa: .*\(taken over\|prefills stay\)" "$out/takeover.log" "$out/takeover.err" | sed 's/^.*medusa: /    /'
		;;
	compiled) MEDUSA_VLLM_PREFILL=compiled restore compiled "$out/engine.medusa" ;;
	steps) # what the processor does in each decode step, live and after the takeover, in turns
		for round in $(seq "${ROUNDS:-3}"); do
			run "steps_live_$round" 300 "${steps[@]}" --out "$out/steps_live_$round.json"
			run "steps_takeover_$round" 300 medusa-restore "$out/engine.medusa" -- "${steps[@]}" --wait 60 --out "$out/steps_takeover_$round.json"
		done
		run steps_probe 300 "${steps[@]}" --probe profile --out "$out/steps_probe.json"
		"$python" tests/gpu/vllm_steps.py --table "$out"
		;;
	verify) run verify "${LIMIT:-300}" medusa-verify "$out/engine.medusa" -- "${engine[@]}" ;;
	multiprocess)
		VLLM_WORKER_MULTIPROC_METHOD=spawn run spawn_capture "${LIMIT:-500}" medusa-capture -o "$out/spawn.medusa" -- "${engine[@]}"
		VLLM_WORKER_MULTIPROC_METHOD=spawn restore spawn "$out/spawn.medusa"
		restore in_process "$out/engine.medusa" --in-process
		;;
	travel) # the caches of a warm start reach a place that has none
		local_cache=${CACHE:-$out/cache} fresh=$out/fresh-cache
		rm -rf "$fresh"
		run travel_capture "${LIMIT:-500}" medusa-capture -o "$out/travel.medusa" --with-cache "VLLM_CACHE_ROOT=$local_cache/vllm" \
			--with-cache "TRITON_CACHE_DIR=$local_cache/triton" --with-cache "TORCHINDUCTOR_CACHE_DIR=$local_cache/inductor" -- "${engine[@]}"
		ls -l "$out/travel.medusa"
		VLLM_CACHE_ROOT=$fresh/vllm TRITON_CACHE_DIR=$fresh/triton TORCHINDUCTOR_CACHE_DIR=$fresh/inductor \
			MEDUSA_VLLM_PREFILL=compiled restore travel "$out/travel.medusa"
		;;
	pieces)
		run pieces_capture "${LIMIT:-500}" medusa-capture -o "$out/pieces.medusa" -- "${pieces[@]}"
		ls -l "$out/pieces.medusa"
		run pieces_live 300 "${pieces[@]}" --out "$out/pieces_live.json"
		MEDUSA_VLLM_TAKEOVER=0 run pieces 300 medusa-restore "$out/pieces.medusa" -- "${pieces[@]}" --out "$out/pieces.json"
		said pieces_capture pieces
		;;
	pieces_takeover)
		run pieces_takeover 300 \
			medusa-restore "$out/pieces.medusa" -- "${pieces[@]}" --out "$out/pieces_takeover.json" --wait 60
		said pieces_takeover
		;;
	pieces_verify) run pieces_verify 500 medusa-verify "$out/pieces.medusa" -- "${pieces[@]}" ;;
	serve)
		run serve_capture "${LIMIT:-500}" medusa-capture -o "$out/serve.medusa" -- "${engine[@]}" --serve
		run serve_live 300 "${engine[@]}" --serve --out "$out/serve_live.json"
		restore serve "$out/serve.medusa" --serve
		MEDUSA_VLLM_PREFORK=0 restore serve_spawn "$out/serve.medusa" --serve
		grep -h "medusa: the engine core's process" "$out/serve.log" "$out/serve.err" | sed 's/^.*medusa: /    /'
		;;
	hurt) "$python" tests/gpu/vllm_hurt.py --cache "${CACHE:-$out/cache}" --out "$out" || failures=$((failures + 1)) ;;
	template)
		[ -e "$out/serve.medusa" ] || run serve_capture "${LIMIT:-500}" medusa-capture -o "$out/serve.medusa" -- "${engine[@]}" --serve
		restore template "$out/serve.medusa" --serve --template "$out/run/socket"
		grep -h "medusa-vllm-template: \|medusa: the engine core's process" "$out/template.log" "$out/template.err" "$out/run/socket.said" | sort -u | sed 's/^.*\(medusa[:-]\)/    \1/'
		;;
	sleep)
		run sleep_cumem 200 "${sleeper[@]}" --in-process --out "$out/sleep_cumem.json"
		run sleep_medusa 200 "${swapped[@]}" -- "${sleeper[@]}" --in-process --out "$out/sleep_medusa.json"
		checks sleep_cumem
		checks sleep_medusa
		;;
	sleep_serve)
		run sleep_serve 240 "${swapped[@]}" -- "${sleeper[@]}" --engine vllm --serve --out "$out/sleep_serve.json"
		checks sleep_serve
		;;
	sleep_restore)
		run sleep_restore 200 "${swapped[@]}" --artifact "$out/engine.medusa" -- "${sleeper[@]}" --in-process --out "$out/sleep_restore.json"
		checks sleep_restore
		;;
	*)
		echo "tests/gpu/vllm: there is no step $step"
		failures=$((failures + 1))
		;;
	esac
done
[[ " hurt steps capture steps " == *" ${STEPS:-} "* ]] || "$python" tests/gpu/vllm_table.py "$out" || failures=$((failures + 1))
# The reports of the step hurt are many, and its verdicts are in hurt.json.
[ -z "${OUT:-}" ] || (cd "$out" && cp $(ls ./*.json | grep -v '^./hurt-') "$OUT/" && tar -czf "$OUT/vllm-logs.tar.gz" $(ls | grep -E '\.(log|err)$|^hurt-.*\.json$'))
exit $((failures > 0))
