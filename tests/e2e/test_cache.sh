#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Caches that travel: what a capture packs, where a start unpacks it, and that nothing else comes of it: not outside of the
# folder, not over another file, not half a file, and no engine that does not start.
. "$(dirname "$0")/lib.sh"
craft=$MEDUSA_BUILD/tests/fuzz/craft
unset TRITON_CACHE_DIR VLLM_CACHE_ROOT TORCHINDUCTOR_CACHE_DIR CUDA_CACHE_PATH XDG_CACHE_HOME TRITON_HOME MEDUSA_TRUSTED_KEYS

# An engine with a compiler: it says so and fills the cache, or says that it is warm if it finds there what it wants.
cat >"$work/compiles" <<'END'
#!/bin/bash
cache=${TRITON_CACHE_DIR:-$HOME/.triton/cache}
if [ -x "$cache/one/launcher.so" ] && [ "$(cat "$cache/one/kernel.json")" = '{}' ]; then
	echo "compiler: warm" >&2
else
	echo "compiler: cold" >&2
	mkdir -p "$cache/one" "$cache/two/deep"
	seq 200000 >"$cache/one/kernel.ptx"
	printf '{}' >"$cache/one/kernel.json"
	head -c 1000000 "$1" >"$cache/one/launcher.so" && chmod 755 "$cache/one/launcher.so"
	: >"$cache/two/deep/lock"
	echo "a b" >"$cache/two/deep/na me"
	echo last >"$cache/zero"
fi
exec "$@"
END
chmod +x "$work/compiles"
compiling=("$work/compiles" "${engine[@]}")
files=6

run_cold() { # name, artifact, options of medusa-restore...
	local name=$1 artifact=$2
	shift 2
	run "$name" medusa-restore "$artifact" "$@" -- "${compiling[@]}" --report "$work/$name.json"
}
at_home() { # runs the rest with a home of its own, empty
	export HOME=$work/homes/$1
	mkdir -p "$HOME"
	shift
	"$@"
}
tree() { (cd "$1" && find . -type f -exec md5sum {} + | sort -k 2); }
assert_same_tree() { assert_equal "the files in $2" "$(tree "$1")" "$(tree "$2")"; }
assert_nothing_in() { # folder: nothing but folders
	assert_equal "files in $1" "" "$(find "$1" ! -type d 2>/dev/null)"
	assert_equal "folders of unpacking in $1" "" "$(find "$1" -name '.medusa-unpack*' 2>/dev/null)"
}
assert_ran() { # name, warm or cold: the engine gave the right output with its graphs restored
	assert_exit "$1" 0
	assert_same_output live "$1"
	assert_restored "$1" $graphs 0
	assert_equal "what the compiler of run '$1' said" "compiler: $2" "$(grep compiler: "$work/$1.err")"
}

run_live live

section "a capture packs regular files, and says what it leaves out"
at_home capture
captured=$HOME/.triton/cache
mkdir -p "$captured/empty"
ln -s /etc/passwd "$captured/link"
ln -s one "$captured/folder-link"
mkfifo "$captured/pipe"
mkdir "$captured/.medusa-unpack.0123456789abcdef"
echo half >"$captured/.medusa-unpack.0123456789abcdef/0"
run packed medusa-capture -o "$work/packed.medusa" --with-cache "$captured" -- "${compiling[@]}"
assert_exit packed 0
assert_equal "starts" "compiler: cold compiler: warm compiler: warm" "$(grep compiler: "$work/packed.err" | paste -sd" ")"
bytes=$(cat "$captured"/one/* "$captured"/two/deep/* "$captured/zero" | wc -c)
assert_contains "$work/packed.err" "$captured/link: a symbolic link, left out"
assert_contains "$work/packed.err" "$captured/folder-link: a symbolic link, left out"
assert_contains "$work/packed.err" "$captured/pipe: a pipe, left out"
assert_contains "$work/packed.err" "caches: $bytes bytes in $files files of 1 folders"
rm -r "$captured/link" "$captured/folder-link" "$captured/pipe" "$captured/empty" "$captured"/.medusa-unpack*
run again medusa-capture -o "$work/again.medusa" --with-cache "$captured" -- "${compiling[@]}"
for name in packed again; do
	medusa-inspect --text "$work/$name.medusa" | sed -n '/^\[caches\]/,$p' >"$work/$name.caches"
done
assert_same_file "$work/packed.caches" "$work/again.caches"
run plain medusa-capture -o "$work/plain.medusa" -- "${compiling[@]}"
assert_exit plain 0

section "what medusa-inspect shows"
run shown medusa-inspect "$work/packed.medusa"
assert_contains "$work/shown.out" "TRITON_CACHE_DIR"
assert_contains "$work/shown.out" "$captured"
run json medusa-inspect --json "$work/packed.medusa"
run parsed python3 -c 'import json, sys
for c in json.load(open(sys.argv[1]))["caches"]: print(c["name"], c["variable"], repr(c["inside"]), c["files"], c["bytes"])' "$work/json.out"
assert_equal "caches in the JSON" "TRITON_CACHE_DIR True '' $files $bytes" "$(cat "$work/parsed.out")"
run none medusa-inspect --json "$work/plain.medusa"
assert_contains "$work/none.out" '"caches": []'
run same medusa-inspect --diff "$work/packed.medusa" "$work/again.medusa"
assert_lacks "$work/same.out" caches
run without medusa-inspect --diff "$work/packed.medusa" "$work/plain.medusa"
assert_exit without 1
assert_contains "$work/without.out" "TRITON_CACHE_DIR"
run text medusa-inspect --text "$work/packed.medusa"
run back medusa-inspect --from-text "$work/text.out" -o "$work/back.medusa"
assert_exit back 0
assert_same_file "$work/packed.medusa" "$work/back.medusa"

section "a new machine starts warm"
at_home fresh
umask 0000 # what is private does not depend on it
run_cold fresh "$work/packed.medusa"
umask 0022
assert_ran fresh warm
assert_same_tree "$captured" "$HOME/.triton/cache"
assert_contains "$work/fresh.err" "TRITON_CACHE_DIR: $files files with "
assert_contains "$work/fresh.err" "(captured in $captured), 0 were there already"
assert_equal "files and folders that others may use" "" "$(find "$HOME/.triton" -perm /077)"
assert_equal "files that may be executed" "$HOME/.triton/cache/one/launcher.so" "$(find "$HOME/.triton" -type f -perm /111)"
assert_equal "folders of unpacking" "" "$(find "$HOME" -name '.medusa-unpack*')"
run_cold second "$work/packed.medusa"
assert_ran second warm
assert_contains "$work/second.err" "TRITON_CACHE_DIR: 0 files with 0 bytes unpacked into"
assert_contains "$work/second.err" "$files were there already"
HOME=$work/homes/capture run_cold same_place "$work/packed.medusa"
assert_ran same_place warm
assert_lacks "$work/same_place.err" "captured in"

section "places that the environment and the command line name"
at_home named
TRITON_CACHE_DIR=$work/named/by/variable run_cold by_variable "$work/packed.medusa"
assert_ran by_variable warm
assert_same_tree "$captured" "$work/named/by/variable"
TRITON_CACHE_DIR=$work/nowhere run_cold by_option "$work/packed.medusa" --cache-dir TRITON_CACHE_DIR="$work/named/by option"
assert_ran by_option warm # so the engine was told
assert_same_tree "$captured" "$work/named/by option"
assert_no_file "$work/nowhere"
(cd "$work" && PATH=$(realpath "$bin"):$PATH medusa-restore packed.medusa --cache-dir TRITON_CACHE_DIR=relative -- sh -c 'echo $TRITON_CACHE_DIR') >"$work/relative.out" 2>&1
assert_contains "$work/relative.out" "$work/relative"
assert_same_tree "$captured" "$work/relative"
assert_no_file "$HOME/.triton"
run_cold none "$work/packed.medusa" --no-caches
assert_ran none cold
assert_lacks "$work/none.err" medusa-restore:
rm -rf "$HOME/.triton"
run_cold stranger "$work/packed.medusa" --no-caches --cache-dir nothing
assert_exit stranger 2
assert_contains "$work/stranger.err" '--cache-dir: "nothing" is not NAME=DIR'
run_cold unknown "$work/packed.medusa" --cache-dir FOO="$work/foo"
assert_ran unknown warm
assert_contains "$work/unknown.err" "--cache-dir: the artifact has no cache named FOO"
assert_no_file "$work/foo"

section "a folder inside the one that a variable names"
at_home inside
export VLLM_CACHE_ROOT=$HOME/vllm
mkdir -p "$VLLM_CACHE_ROOT/torch_compile_cache/a" "$HOME/own"
echo x >"$VLLM_CACHE_ROOT/torch_compile_cache/a/b"
echo y >"$VLLM_CACHE_ROOT/other"
echo z >"$HOME/own/c"
run inside medusa-capture -o "$work/inside.medusa" --with-cache "$VLLM_CACHE_ROOT/torch_compile_cache" --with-cache "$HOME/own" -- "${engine[@]}"
assert_exit inside 0
VLLM_CACHE_ROOT=$work/vllm run_restored inside_restored "$work/inside.medusa"
assert_exit inside_restored 0
assert_equal "files" "./torch_compile_cache/a/b" "$(cd "$work/vllm" && find . -type f)"
assert_contains "$work/inside_restored.err" "own: nothing says where the engine looks for this cache; unpack it with --cache-dir own=DIR"
unset VLLM_CACHE_ROOT
run own medusa-restore "$work/inside.medusa" --cache-dir own="$work/owned" --cache-dir VLLM_CACHE_ROOT="$work/vllm2" -- sh -c 'echo "$own $VLLM_CACHE_ROOT"'
assert_exit own 0
assert_equal "what the engine was told" " $work/vllm2" "$(cat "$work/own.out")"
assert_equal "files" "./c" "$(cd "$work/owned" && find . -type f)"
assert_equal "files" "./torch_compile_cache/a/b" "$(cd "$work/vllm2" && find . -type f)"

section "an artifact does not say where to"
at_home victim
for variable in HOME PATH LD_LIBRARY_PATH MEDUSA_LOG_FILE; do
	run craft "$craft" "$work/packed.medusa" "$work/steered.medusa" caches name "text=$variable" 0
	assert_exit craft 0
	run_cold steered "$work/steered.medusa"
	assert_ran steered cold
	assert_contains "$work/steered.err" "$variable: nothing says where the engine looks for this cache"
	rm -r "$HOME/.triton"
	assert_nothing_in "$HOME"
done

section "paths that lead out of the folder, and names that are none"
for path in ../../../outside /tmp/outside one/../../../../outside . .. one/ "" one//two .medusa-unpack.x; do
	run craft "$craft" "$work/packed.medusa" "$work/outside.medusa" caches path "text=$path" 1
	assert_exit craft 0
	run_cold outside "$work/outside.medusa"
	assert_exit outside 0
	assert_same_output live outside
	assert_restored outside $graphs 0
	assert_contains "$work/outside.err" "no caches are unpacked: section \"caches\""
	assert_contains "$work/outside.err" "compiler: cold"
	rm -r "$HOME/.triton"
	assert_nothing_in "$HOME"
done
run craft "$craft" "$work/packed.medusa" "$work/outside.medusa" caches inside "text=../.."
run_cold outside "$work/outside.medusa"
assert_contains "$work/outside.err" "no caches are unpacked: section \"caches\""
assert_restored outside $graphs 0
rm -r "$HOME/.triton"

section "every value of the index absent, nil, or at its bounds: the engine starts with its graphs"
run list "$craft" list "$work/packed.medusa"
while read -r _ key kind; do
	for value in absent nil 0 1 4294967295 18446744073709551615; do
		[ "$kind" = number ] || [ "$value" = absent ] || [ "$value" = nil ] || continue
		"$craft" "$work/packed.medusa" "$work/value.medusa" caches "$key" "$value" all || continue
		rm -rf "$HOME/.triton"
		run value medusa-restore "$work/value.medusa" -- true
		assert_exit value 0
		assert_equal "lines about $key=$value" 1 "$(grep -c medusa-restore: "$work/value.err")"
		grep -q "files with .* bytes unpacked" "$work/value.err" || assert_nothing_in "$HOME"
	done
done < <(grep '^caches ' "$work/list.out")
rm -rf "$HOME/.triton"

section "files that are there"
at_home others
mkdir -p "$HOME/.triton/cache/one" "$HOME/.triton/cache/two"
cp "$captured/one/kernel.ptx" "$HOME/.triton/cache/one/kernel.ptx"
printf '[]' >"$HOME/.triton/cache/one/kernel.json" # as many bytes as the other has
echo mine >"$HOME/.triton/cache/two/mine"
run_cold others "$work/packed.medusa"
assert_exit others 0
assert_same_output live others
assert_contains "$work/others.err" "$((files - 2)) files with "
assert_contains "$work/others.err" "1 were there already"
assert_contains "$work/others.err" "TRITON_CACHE_DIR: 1 files exist with other bytes, and stay: one/kernel.json"
assert_equal "my file" mine "$(cat "$HOME/.triton/cache/two/mine")"
mkdir -p "$work/odd/one/kernel.ptx" # a folder where a file belongs, and a link to nothing
ln -s /nonexistent "$work/odd/one/kernel.json"
run odd medusa-restore "$work/packed.medusa" --cache-dir TRITON_CACHE_DIR="$work/odd" -- true
assert_exit odd 0
assert_contains "$work/odd.err" "2 files exist with other bytes, and stay: one/kernel.json, one/kernel.ptx"
assert_no_file /nonexistent

section "links and folders of others"
at_home linked
mkdir -p "$HOME/.triton/cache" "$work/elsewhere"
ln -s "$work/elsewhere" "$HOME/.triton/cache/one"
run_cold linked "$work/packed.medusa"
assert_exit linked 0
assert_contains "$work/linked.err" "TRITON_CACHE_DIR: not unpacked into $HOME/.triton/cache, and the engine starts without it: one is a link or a file, not a folder"
rm "$HOME/.triton/cache/one"
rm -r "$HOME/.triton/cache"
if [ "$(id -u)" = 0 ]; then
	mkdir -p "$HOME/.triton/cache/two"
	chown 12 "$HOME/.triton/cache/two"
	run foreign medusa-restore "$work/packed.medusa" -- true
	assert_contains "$work/foreign.err" "two belongs to user 12"
	chown 12 "$HOME/.triton/cache"
	run foreign medusa-restore "$work/packed.medusa" -- true
	assert_contains "$work/foreign.err" "belongs to user 12"
	assert_nothing_in "$HOME"
else
	echo "skipped: folders of others (needs root)"
fi
echo file >"$work/file"
run file medusa-restore "$work/packed.medusa" --cache-dir TRITON_CACHE_DIR="$work/file" -- true
assert_exit file 0
assert_contains "$work/file.err" "not unpacked into $work/file"

section "signatures"
at_home signed
run keygen medusa-sign keygen -o "$work/build.key"
run other medusa-sign keygen -o "$work/other.key"
run sign medusa-sign sign "$work/packed.medusa" --key "$work/build.key" -o "$work/signed.medusa"
assert_exit sign 0
export MEDUSA_TRUSTED_KEYS=$work/build.key.pub
run_cold unsigned "$work/packed.medusa"
assert_exit unsigned 0
assert_restored unsigned 0 $graphs
assert_contains "$work/unsigned.err" "no caches are unpacked: not signed, and only keys in $work/build.key.pub are trusted"
assert_contains "$work/unsigned.err" "compiler: cold"
rm -r "$HOME/.triton"
for keys in "$work/other.key.pub" "" "$work/nowhere"; do
	MEDUSA_TRUSTED_KEYS=$keys run mistrusted medusa-restore "$work/signed.medusa" -- true
	assert_exit mistrusted 0
	assert_contains "$work/mistrusted.err" "no caches are unpacked: "
	assert_nothing_in "$HOME"
done
run_cold trusted "$work/signed.medusa"
assert_ran trusted warm
rm -r "$HOME/.triton"
for section_name in caches cache_data; do
	python3 - "$work/signed.medusa" "$work/flipped.medusa" $section_name <<'END'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
count, = struct.unpack_from("<I", data, 32)
table, = struct.unpack_from("<Q", data, 40)
for row in range(table, table + 64 * count, 64):
    if data[row:row + 16].rstrip(b"\0") == sys.argv[3].encode():
        offset, stored = struct.unpack_from("<QQ", data, row + 16)
        data[offset + stored // 2] ^= 4
open(sys.argv[2], "wb").write(data)
END
	run_cold flipped "$work/flipped.medusa"
	assert_ran flipped cold # the graphs are none of it
	assert_contains "$work/flipped.err" "section \"$section_name\""
	rm -r "$HOME/.triton"
	run check medusa-sign check "$work/flipped.medusa"
	assert_exit check 3
	run flipped medusa-restore "$work/flipped.medusa" -- true
	assert_nothing_in "$HOME"
done
unset MEDUSA_TRUSTED_KEYS

section "an artifact without caches, and one that is none"
at_home nothing
run_cold without "$work/plain.medusa"
assert_ran without cold
assert_equal "lines of the command" 0 "$(grep -c medusa-restore: "$work/without.err")"
rm -r "$HOME/.triton"
head -c 3000 "$work/packed.medusa" >"$work/cut.medusa"
run_cold cut "$work/cut.medusa"
assert_exit cut 0
assert_same_output live cut
assert_count "$work/cut.err" "nothing is restored" 1
assert_equal "lines of the command" 0 "$(grep -c medusa-restore: "$work/cut.err")"
rm -r "$HOME/.triton"

section "preloaded without the command"
run preloaded env "$(preload restore)" MEDUSA_ARTIFACT="$work/packed.medusa" "${compiling[@]}" --report "$work/preloaded.json"
assert_ran preloaded cold
rm -r "$HOME/.triton"

section "medusa-verify starts the engine as a cold start does"
run verify medusa-verify "$work/packed.medusa" -- "${compiling[@]}"
assert_exit verify 0
assert_contains "$work/verify.err" "compiler: warm"
assert_same_tree "$captured" "$HOME/.triton/cache"
rm -r "$HOME/.triton"
run verify medusa-verify "$work/packed.medusa" --no-caches -- "${compiling[@]}"
assert_exit verify 0
assert_contains "$work/verify.err" "compiler: cold"

section "a disk without room"
at_home full
if mkdir "$work/small" && mount -t tmpfs -o size=1m none "$work/small" 2>/dev/null; then
	mounted=$work/small
	TRITON_CACHE_DIR=$work/small/cache run_cold full "$work/packed.medusa"
	assert_exit full 0
	assert_contains "$work/full.err" "bytes are to be written, and the disk has room for"
	assert_restored full $graphs 0
	assert_contains "$work/full.err" "compiler: cold"
	umount "$work/small"
	mounted=
else
	echo "skipped: a disk without room (needs root, and mount)"
fi
# A limit of the size of files: what is written fails in the middle.
run limited bash -c 'ulimit -f 1000 && "$@"; exit $?' bash medusa-restore "$work/packed.medusa" -- sh -c 'kill -XFSZ $$; echo survived'
assert_contains "$work/limited.err" "not unpacked into $HOME/.triton/cache, and the engine starts without it: one/kernel.ptx: "
assert_contains "$work/limited.err" "File too large"
assert_lacks "$work/limited.out" survived # the engine has its signals as they were
assert_nothing_in "$HOME"

section "bounds"
run limit medusa-capture -o "$work/limit.medusa" --with-cache "$captured" --cache-limit 1M -- "${compiling[@]}"
assert_exit limit 3
assert_contains "$work/limit.err" "--with-cache: the caches have "
assert_contains "$work/limit.err" "and at most 1048576 are packed (--cache-limit); the largest file is $captured/one/kernel.ptx with "
assert_count "$work/limit.err" "capture 1:" 1
assert_lacks "$work/limit.err" "capture 2 of 2"
assert_no_file "$work/limit.medusa"
for bad in 0 3G x 1KB -1 ""; do
	run bad medusa-capture -o "$work/limit.medusa" --cache-limit "$bad" -- true
	assert_exit bad 2
	assert_contains "$work/bad.err" "--cache-limit: \"$bad\" is not a number of bytes from 1 to 2G"
done
run missing medusa-capture -o "$work/missing.medusa" --with-cache "$work/not there" -- "${engine[@]}"
assert_exit missing 3
assert_contains "$work/missing.err" "--with-cache: $work/not there: No such file or directory"
run nested medusa-capture -o "$work/nested.medusa" --with-cache "$captured" --with-cache "$captured/one" -- "${engine[@]}"
assert_exit nested 3
assert_contains "$work/nested.err" "are one folder, or one lies in the other"

# ---- many starts -----------------------------------------------------------------------------------------------------
section "a large cache"
at_home large
mkdir -p "$HOME/.triton/cache"
python3 - "$HOME/.triton/cache" <<'END'
import os, random, sys
random.seed(1)
for i in range(300):
    folder = os.path.join(sys.argv[1], "k%03d" % (i % 40))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "%d.cubin" % i), "wb") as out:
        out.write(random.randbytes(9000000 if i % 100 == 7 else random.randrange(60000)))
END
large=$HOME/.triton/cache
run large medusa-capture -o "$work/large.medusa" --with-cache "$large" --single -- "${engine[@]}"
assert_exit large 0

assert_whole() { # the original, a folder: what has its name is whole
	local torn
	checks=$((checks + 1))
	torn=$([ ! -d "$2" ] || tree "$2" | grep -v '\.medusa-unpack' | grep -vxFf <(tree "$1"))
	[ -z "$torn" ] || fail "only whole files in $2 ($3)" "$torn"
}

section "killed while files are unpacked"
at_home killed
seen=0
until_unpacking() { # a folder of unpacking is there, or the start has ended
	for _ in $(seq 1000); do
		[ -z "$(find "$HOME/.triton/cache" -path '*medusa-unpack*/*' 2>/dev/null | head -n 1)" ] && kill -0 $victim 2>/dev/null || break
	done
}
for ms in 000 002 006 012 020 030 045 060 100 $(seq 50 | sed 's/.*/begun/'); do
	[ "$ms" != begun ] || [ $seen = 0 ] || break # only where all of the others came too early or too late
	rm -rf "$HOME/.triton"
	medusa-restore "$work/large.medusa" -- sleep 60 >"$work/killed.out" 2>"$work/killed.err" &
	victim=$!
	if [ "$ms" = begun ]; then until_unpacking; else sleep 0.$ms; fi
	kill -KILL $victim
	wait $victim 2>/dev/null
	assert_whole "$large" "$HOME/.triton/cache" "after $ms ms"
	[ -z "$(find "$HOME" -name '.medusa-unpack*')" ] || seen=$((seen + 1))
done
assert_at_least "starts that were killed at work" 1 $seen
run after medusa-restore "$work/large.medusa" -- true
assert_exit after 0
assert_same_tree "$large" "$HOME/.triton/cache"
assert_equal "folders of unpacking" "" "$(find "$HOME" -name '.medusa-unpack*')"

section "a file that somebody else makes while files are unpacked"
made=
for _ in $(seq 50); do # until the start was stopped before it moved anything
	rm -rf "$HOME/.triton"
	medusa-restore "$work/large.medusa" -- true >"$work/meanwhile.out" 2>"$work/meanwhile.err" &
	victim=$!
	until_unpacking
	kill -STOP $victim 2>/dev/null
	if [ -d "$HOME/.triton/cache" ] && [ ! -d "$HOME/.triton/cache/k000" ]; then
		made=1
		mkdir "$HOME/.triton/cache/k000"
		echo mine >"$HOME/.triton/cache/k000/0.cubin"
		cp "$large/k000/40.cubin" "$HOME/.triton/cache/k000/40.cubin"
	fi
	kill -CONT $victim 2>/dev/null
	wait $victim
	[ -z "$made" ] || break
done
assert_equal "a start that was stopped in time" 1 "$made"
assert_equal "my file" mine "$(cat "$HOME/.triton/cache/k000/0.cubin")"
assert_contains "$work/meanwhile.err" "TRITON_CACHE_DIR: 298 files with "
assert_contains "$work/meanwhile.err" "1 were there already"
assert_contains "$work/meanwhile.err" "1 files exist with other bytes, and stay: k000/0.cubin"
cp "$large/k000/0.cubin" "$HOME/.triton/cache/k000/0.cubin"
assert_same_tree "$large" "$HOME/.triton/cache"
assert_equal "folders of unpacking" "" "$(find "$HOME" -name '.medusa-unpack*')"

# Before each use of a file, and with each use of a file, or of memory, failing.
for kind in kill file short memory; do
	section "each use in its turn: $kind"
	at_home "inject_$kind"
	moved=0 due=0
	for n in $(seq 1000); do
		rm -rf "$HOME/.triton"
		# by a shell of its own, which is the one to say that something was killed
		run inject sh -c '"$@"; exit $?' sh env LD_PRELOAD="$MEDUSA_BUILD/tests/faults/inject.so" INJECT=$kind:$n INJECT_FROM=medusa-restore \
			INJECT_PROGRAM=medusa-restore medusa-restore "$work/packed.medusa" -- echo started
		grep -q '^inject: call' "$work/inject.err" || break
		due=$n
		assert_whole "$captured" "$HOME/.triton/cache" "$kind $n"
		[ -z "$(find "$HOME" -path '*cache/one/*')" ] || moved=$((moved + 1))
		checks=$((checks + 1))
		case $kind:$code in
		kill:137) ;;
		*:0) grep -q started "$work/inject.out" || fail "the engine" "nothing ($kind $n)" ;;
		file:[34] | memory:[34]) grep -q '^medusa-restore: ' "$work/inject.err" || fail "a reason" "none ($kind $n)" ;;
		*) fail "the engine, or a reason" "exit code $code ($kind $n); $(excerpt "$work/inject.err")" ;;
		esac
	done
	assert_at_least "uses that failed" 4 $due
	assert_at_least "runs that moved files" 2 $moved
	run again medusa-restore "$work/packed.medusa" -- true
	assert_same_tree "$captured" "$HOME/.triton/cache"
done

section "a start waits for the one that is at work"
at_home waits
mkdir -p "$HOME/.triton/cache"
mkfifo "$work/holds"
flock "$HOME/.triton/cache" sh -c 'echo held >"$1"; sleep 1; echo done >"$2"' sh "$work/holds" "$work/held" &
victim=$!
assert_equal "who holds the lock" held "$(cat "$work/holds")"
run waits medusa-restore "$work/packed.medusa" -- cat "$work/held"
assert_exit waits 0 # it began after that: the file is there
assert_contains "$work/waits.err" "TRITON_CACHE_DIR: $files files with "
wait $victim

section "eight starts at once"
for round in 1 2 3; do
	at_home "eight$round"
	victims=()
	for i in 1 2 3 4 5 6 7 8; do
		medusa-restore "$work/large.medusa" -- sh -c 'find "$HOME/.triton/cache" -name "*.cubin" | wc -l' >"$work/eight.$i.out" 2>"$work/eight.$i.err" &
		victims+=($!)
	done
	for i in 1 2 3 4 5 6 7 8; do
		wait "${victims[$((i - 1))]}"
		assert_equal "exit code of start $i" 0 $?
		assert_equal "files that engine $i found" 300 "$(cat "$work/eight.$i.out")"
		assert_lacks "$work/eight.$i.err" "not unpacked"
		assert_lacks "$work/eight.$i.err" "other bytes"
	done
	assert_equal "files that were written by all" 300 "$(sed -n 's/.*DIR: \([0-9]*\) files with.*/\1/p' "$work"/eight.*.err | paste -sd+ | bc)"
	assert_same_tree "$large" "$HOME/.triton/cache"
	assert_equal "folders of unpacking" "" "$(find "$HOME" -name '.medusa-unpack*')"
done
finish
