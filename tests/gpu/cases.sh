# SPDX-License-Identifier: Apache-2.0
# Sourced: runs cases side by side, each in processes of its own and for no longer than LIMIT seconds; one line a case.
# What sources this defines `one NAME`, calls `cases NAME...` and then `finish`. ONLY="child events" picks cases; logs
# lie in build/tests/gpu/SCRIPT, and OUT, a folder, gets them as one file. MEDUSA_DEVICE=host is for trying the script
# itself.
set -u
self=$PWD/$0
[ "${0:0:1}" != / ] || self=$0
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
asked=${MEDUSA_DEVICE:-auto} what=$(basename "$0" .sh)
. tests/e2e/device.sh
out=$MEDUSA_BUILD/tests/gpu/$what images=$MEDUSA_BUILD/tests/images suffix=host.so
[ "$MEDUSA_DEVICE" = host ] || suffix=fatbin
if [ "$MEDUSA_DEVICE" = host ] && [ "$asked" = auto ]; then
	echo "tests/gpu/$what: skipped: no NVIDIA GPU with a driver on this machine"
	exit 77
fi
unset MEDUSA_LOG MEDUSA_LOG_FILE MEDUSA_RESOLVE MEDUSA_ARTIFACT MEDUSA_REQUIRE_PROOF MEDUSA_PROBE MEDUSA_TRACE
export PATH=$MEDUSA_BUILD/bin:$PATH

# A script that ends early with 0 has not tested what stands below.
unfinished() {
	local code=$?
	[ $code != 0 ] || { echo "tests/gpu/$what: ended without finish"; code=1; }
	exit $code
}
[ "${1:-}" = --case ] || trap unfinished EXIT

# ---- a case: the last line that it prints, and its exit code, are the verdict ----------------------------------------
passes() { printf '%s\n' "$*"; exit 0; }
skips() { printf 'skipped (%s)\n' "$*"; exit 77; }
fails() { printf '%s\n' "$*"; exit 1; }

# What a driver may say of a call that it does not support; whatever else it says is a failure.
unsupported='NOT_SUPPORTED|NOT_PERMITTED|INVALID_VALUE|INVALID_DEVICE|OPERATING_SYSTEM|INVALID_CLUSTER_SIZE|STREAM_CAPTURE_UNSUPPORTED|COOPERATIVE_LAUNCH_TOO_LARGE|JIT_COMPILER_NOT_FOUND|UNSUPPORTED_PTX_VERSION'

# The program without Medusa: what it cannot do there proves nothing, and says so.
live() { # command...
	local code=0 said
	"$@" >live.out 2>live.err || code=$?
	[ $code = 0 ] && [ -s live.out ] && return
	! grep -q 'not given again' live.err || skips "this driver gives no address again at once"
	said=$(grep -m 1 -E "CUDA_ERROR_($unsupported)\b" live.err)
	[ "$MEDUSA_DEVICE" = gpu ] && [ -n "$said" ] && skips "this driver refuses it: $said"
	fails "without Medusa: exit $code, $(tail -n 1 live.err)"
}

captured() { # exit code that is allowed besides 0, options of medusa-capture..., --, command...
	local allowed=$1 code=0
	shift
	medusa-capture --vary '*' -o captured.medusa "$@" >captured.out 2>captured.err || code=$?
	[ $code = 0 ] || [ $code = "$allowed" ] || fails "capture: exit $code, $(grep -v '^medusa-capture: [0-9]' captured.err | tail -n 1)"
	grep -q 'not labelled' captured.err && fails "capture: $(grep -m 1 'not labelled' captured.err)"
	medusa-inspect --text captured.medusa >captured.txt || fails "the artifact cannot be read"
}

restored() { # options of medusa-restore..., --, command...: and what it computes is what it computed live
	local code=0
	medusa-restore captured.medusa "$@" >restored.out 2>restored.err || code=$?
	[ $code = 0 ] || fails "restore: exit $code, $(tail -n 1 restored.err)"
	cmp -s live.out restored.out || fails "restored is not as live: $(diff live.out restored.out | tail -n +2 | head -n 2 | tr '\n' ' ')"
}

verified() { # graphs, command...
	local count=$1 code=0
	shift
	medusa-verify captured.medusa --junit verified.xml -- "$@" >verified.out 2>verified.err || code=$?
	grep -q "^$count passed, 0 failed, 0 skipped" verified.out && [ $code = 0 ] ||
		fails "verify: exit $code, $(grep -E 'FAIL|failed' verified.out verified.err | tail -n 1)"
}

# ---- all cases -------------------------------------------------------------------------------------------------------
run_case() { # name: its line, and its verdict in a file
	local name=$1 start=$SECONDS code=0 word text
	timeout --kill-after=5 "${LIMIT:-60}" bash "$self" --case "$name" >"$out/$name/said" 2>&1 || code=$?
	text=$(tail -n 1 "$out/$name/said")
	case $code in
	0) word=pass ;;
	77) word=skip ;;
	124 | 137) word=FAIL text="ended after ${LIMIT:-60} s" ;;
	*) word=FAIL ;;
	esac
	printf '%s\n' $word >"$out/$name/verdict"
	printf '  %-4s  %-34s %3d s  %.150s\n' $word "$what/$name" $((SECONDS - start)) "$text"
}

wanted() { [ -z "${ONLY:-}" ] || [[ " $ONLY " == *" $1 "* ]]; }

built() { # files
	local file
	for file; do
		[ -s "$file" ] || { echo "tests/gpu/$what: no ${file#"$PWD/"}: make all tests, and carry it"; exit 1; }
	done
}

cases() { # name...
	local name jobs=${JOBS:-$(($(nproc) / 2))}
	[ -n "${JOBS:-}" ] || jobs=$((jobs < 2 ? 2 : jobs > 8 ? 8 : jobs))
	for name; do
		wanted "$name" || continue
		while [ "$(jobs -rp | wc -l)" -ge $jobs ]; do
			wait -n
		done
		rm -rf "${out:?}/$name"
		mkdir -p "$out/$name"
		ran+=("$name")
		run_case "$name" &
	done
	wait
}

with_verdict() { # word: the cases that have it
	local name
	for name in ${ran[@]+"${ran[@]}"}; do
		[ "$(cat "$out/$name/verdict" 2>/dev/null)" != "$1" ] || printf '%s\n' "$name"
	done
}

finish() {
	local name
	trap - EXIT
	for name in $(with_verdict FAIL | head -n "${SHOW:-8}"); do
		printf -- '---- %s/%s\n' "$what" "$name"
		(cd "$out/$name" && tail -n "${TAIL:-4}" said ./*.err | cut -c1-240)
	done
	[ -z "${OUT:-}" ] || (cd "$out" && tar -czf "$OUT/$what-logs.tar.gz" --exclude='*.medusa' --exclude='*.mtrace' .)
	printf 'tests/gpu/%s: %d passed, %d failed, %d skipped in %d s on %s; logs in %s\n' "$what" "$(with_verdict pass | wc -l)" \
		"$(with_verdict FAIL | wc -l)" "$(with_verdict skip | wc -l)" $SECONDS "$MEDUSA_DEVICE" "${out#"$PWD/"}"
	[ "$(with_verdict pass | wc -l)" -gt 0 ] && [ "$(with_verdict pass | wc -l)" = "$((${#ran[@]} - $(with_verdict skip | wc -l)))" ]
	exit $?
}

ran=()
begin() { # "$@": in a process that runs one case, that case
	[ "${1:-}" = --case ] || return 0
	cd "$out/$2" || exit 1
	one "$2"
	fails "it came to no verdict"
}
