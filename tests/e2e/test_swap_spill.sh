#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The spill file (medusa-swap run --spill): engines whose memory together exceeds the pool go out and come in, in many orders,
# and compute what they compute alone. Disks that are full, files that are changed, engines that are killed.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh

declare -A shell ins sum
disk=$work/disk
mkdir "$disk"

# ---- engines --------------------------------------------------------------------------------------------------------------
start() { # name, options of run...
	local name=$1 fd
	engine_name=$name
	shift
	rm -f "$work/$name.in" "$work/$name.said"
	mkfifo "$work/$name.in"
	timeout --kill-after=5 "$engine_limit" medusa-swap run --name "$name" "$@" -- "${subject[@]}" 0 <"$work/$name.in" >"$work/$name.said" 2>"$work/$name.err" &
	shell[$name]=$!
	exec {fd}>"$work/$name.in"
	ins[$name]=$fd
	until_said "$name" 1
	until_engine
}

until_said() { # name, lines
	for _ in $(seq 6000); do
		[ "$(wc -l <"$work/$1.said")" -ge "$2" ] && return
		sleep 0.02
	done
	fail "line $2 of $1" "$(cat "$work/$1.said" "$work/$1.err")"
}

tell() { # name, words...
	local name=$1 before
	shift
	before=$(wc -l <"$work/$name.said")
	printf '%s\n' "$*" >&"${ins[$name]}"
	until_said "$name" $((before + 1))
	answered=$(tail -n 1 "$work/$name.said")
}

grow() { # name, what is in its memory: 24 MB, of which no other engine has any
	tell "$1" alloc 24
	tell "$1" write "$2"
	tell "$1" sum
	sum[$1]=$answered
}

of() { # name, key
	engine_name=$1
	state "$2"
}

moved() { # run, name, verb, options...
	local run=$1
	engine_name=$2
	shift 2
	done_swap "$run" "$@"
}

whole() { # name, what for
	tell "$1" sum
	assert_equal "the memory of $1 $2" "${sum[$1]}" "$answered"
}

end() { # name
	local got=0
	printf 'exit 0\n' >&"${ins[$1]}" 2>/dev/null
	await_end "${shell[$1]}" "$1"
	wait "${shell[$1]}" 2>/dev/null || got=$?
	assert_equal "the exit code of $1" 0 "$got"
	exec {ins[$1]}>&-
}

kill_whole() { # name: the engine and its medusa-swap run at once
	# shellcheck disable=SC2046 # two words
	kill -KILL $(of "$1" engine_pid) $(of "$1" pid)
	wait "${shell[$1]}" 2>/dev/null
	exec {ins[$1]}>&-
}

make_pool() { # bytes,folder,bytes: descriptors 9 and 8 of this shell
	"$MEDUSA_BUILD/tests/subjects/pool_subject" "$1" sleep 600 2>"$work/pool.err" &
	holder=$!
	for _ in $(seq 1200); do
		case $(readlink "/proc/$holder/fd/9") in *memfd:medusa-swap-pool*) exec 9<>"/proc/$holder/fd/9" 8<>"/proc/$holder/fd/8" && return ;; esac
		sleep 0.05
	done
	fail 'a pool' "$(cat "$work/pool.err")"
}

end_pool() {
	exec 9>&- 8>&-
	kill "$holder"
	wait "$holder" 2>/dev/null
}

section 'an engine that is larger than its pool'
expected 'work 3' 'work 2'
start alone --pool-bytes 12M --spill "$disk" --spill-bytes 100M
assert_equal 'the room in the file' 104857600 "$(of alone spill_bytes)"
grow alone 1000
moved out alone out
assert_at_least 'bytes that are held in the file' 16000000 "$(of alone spill_held)"
assert_equal 'of them this engine' "$(of alone spill_held)" "$(of alone in_file)"
assert_equal 'they were written' "$(of alone spill_held)" "$(number out spilled)"
assert_equal 'files with names' '' "$(ls -A "$disk")"
run words medusa-swap status alone
assert_contains "$work/words.out" '; spill file: 104.9 MB, of which '
moved in alone in --verify
assert_at_least 'bytes that were read' 16000000 "$(number in spilled)"
assert_equal 'nothing is held' '0 0 0' "$(of alone spill_held) $(of alone in_file) $(of alone pool_held)"
whole alone 'after one swap'
moved out alone out
assert_at_most 'bytes that are written again' $((4 << 20)) "$(number out spilled)"
moved in alone in --overlap
assert_at_least 'overlap: bytes that were read' 16000000 "$(number in spilled)"
assert_equal 'overlap: bytes that were still to come' 0 "$(number in coming_at_open)"
for _ in 1 2 3; do
	moved out alone out
	moved in alone in
done
whole alone 'after many'
moved out alone out
run release medusa-swap release alone
assert_exit release 0
whole alone 'after its release'
end alone

section 'three engines share a pool that holds one of them: outputs are those that each has alone'
make_pool $((40 << 20)),"$disk",$((200 << 20))
for name in a b c; do start $name --pool-fd 9 --spill-fd 8; done
grow a 1100
grow b 1200
grow c 1300
for order in 'a b c a b c' 'a b c c b a' 'c a b b c a' 'b c a c a b'; do
	# shellcheck disable=SC2086 # words
	set -- $order
	moved o1 "$1" out
	moved o2 "$2" out
	moved o3 "$3" out
	assert_at_least 'bytes in the file while three are out' 30000000 "$(of a spill_held)"
	for _ in $(seq 1200); do [ "$(of "$1" in_file)" -ge 10000000 ] && break || sleep 0.05; done # it says so by itself
	assert_at_least "bytes in the file of $1, which was out first" 10000000 "$(of "$1" in_file)"
	moved i1 "$4" in
	tell "$4" work 2
	assert_equal "$4 works while the others are out" work "${answered%% *}"
	tell "$4" sum
	sum[$4]=$answered # work has changed it
	moved i2 "$5" in --verify
	moved i3 "$6" in
	for name in a b c; do whole $name "after $order"; done
done
assert_equal 'all see one file' "$(of a spill_held) $(of a spill_bytes)" "$(of b spill_held) $(of c spill_bytes)"
before=$(cat "/proc/$(of a engine_pid)/status" | sed -n 's/^Threads:\t//p') files=$(find "/proc/$(of a engine_pid)/fd" | wc -l)
for round in 1 2 3 4 5 6; do
	for name in a b c; do moved out $name out; done
	# at once
	for name in b c a; do medusa-swap in $name >"$work/at_once.$name" 2>&1 & commands[${#commands[@]}]=$!; done
	wait "${commands[@]}"
	commands=()
	for name in a b c; do whole $name "after round $round at once"; done
	for name in a b c; do medusa-swap out $name >"$work/at_once.$name" 2>&1 & commands[${#commands[@]}]=$!; done
	wait "${commands[@]}"
	commands=()
	for name in c b a; do moved in $name in; done
done
assert_equal 'threads of a' "$before" "$(sed -n 's/^Threads:\t//p' "/proc/$(of a engine_pid)/status")"
assert_at_most 'descriptors of a' "$files" "$(find "/proc/$(of a engine_pid)/fd" | wc -l)"

section 'a file that was changed: in is refused by name, and nothing else is lost'
for name in a b c; do moved out $name out; done
python3 - "/proc/$holder/fd/8" "$work/kept" <<'END'
import os, sys
size = os.stat(sys.argv[1]).st_size
with open(sys.argv[1], "r+b", buffering=0) as file, open(sys.argv[2], "wb") as kept:
    for at in range(0, size, 2 << 20):
        file.seek(at)
        data = file.read(4096)
        kept.write(data)
        file.seek(at)
        file.write(bytes(255 - byte for byte in data))
END
engine_name=a
swap changed in
assert_exit changed 1
assert_contains "$work/changed.err" "engine a, process $(of a engine_pid): the spill file in $disk: the 2 MiB at offset "
assert_contains "$work/changed.err" 'have other bytes than were written there'
assert_equal 'it stays out' out "$(of a state)"
python3 - "/proc/$holder/fd/8" "$work/kept" <<'END'
import sys
with open(sys.argv[1], "r+b", buffering=0) as file, open(sys.argv[2], "rb") as kept:
    at = 0
    while data := kept.read(4096):
        file.seek(at)
        file.write(data)
        at += 2 << 20
END
moved in a in --verify
moved in b in --verify
moved in c in
for name in a b c; do whole $name 'after the file was mended'; done

section 'a limit of files in an engine (ulimit -f): out is refused, and the engine goes on'
for name in a b; do
	tell $name write 2000
	tell $name sum
	sum[$name]=$answered
done
tell b write 3000
tell b sum
sum[b]=$answered
moved out a out
moved out c out
prlimit --pid "$(of b engine_pid)" --fsize=4096:unlimited
engine_name=b
swap limited out
assert_exit limited 6
assert_contains "$work/limited.err" "the spill file in $disk: writing 2 MiB at offset "
assert_contains "$work/limited.err" 'File too large'
whole b 'after the refusal'
prlimit --pid "$(of b engine_pid)" --fsize=unlimited
moved in a in --verify
moved in c in --verify
for name in a c; do whole $name 'after the refusal of b'; done
moved out b out
moved in b in
whole b 'without the limit'

section 'killed in the middle, whole: the others go on, and nothing stays held'
for round in $(seq 8); do
	start victim --pool-fd 9 --spill-fd 8
	tell victim alloc 24
	tell victim write $((4000 + 100 * round))
	moved out a out
	verb=out
	[ $((round % 2)) = 0 ] || { moved out victim out && verb=in && moved out b out; }
	medusa-swap $verb victim >/dev/null 2>&1 &
	command=$!
	sleep "0.0$((round * 7 % 60 + 10))"
	kill_whole victim
	wait $command
	[ $verb = out ] || moved in b in
	moved in a in
	whole a "after death $round"
	whole b "after death $round"
done
start late --pool-fd 9 --spill-fd 8
for _ in $(seq 1200); do
	[ "$(of a pool_held) $(of a spill_held)" = '0 0' ] && break
	sleep 0.05
done
assert_equal 'bytes that are held after all deaths' '0 0' "$(of a pool_held) $(of a spill_held)"
end late

section 'refusals'
refused() { # code, message, options of run...
	local wanted=$1 message=$2
	shift 2
	run refused medusa-swap run --name none "$@" -- touch "$work/ran"
	assert_exit refused "$wanted"
	assert_contains "$work/refused.err" "$message"
	assert_no_file "$work/ran"
	rm -f "$work/ran"
}
refused 3 "the pool has a spill file, in $disk, and its descriptor was not given (medusa-swap run --spill-fd)" --pool-fd 9
refused 3 'not that of the pool' --pool-fd 9 --spill-fd 9
refused 3 '--spill-fd 77: no such descriptor is open' --pool-fd 9 --spill-fd 77
refused 2 '--spill-fd: only with --pool-fd' --spill-fd 8
refused 2 '--spill-bytes: only with --spill' --spill-bytes 1G
refused 2 'with --pool-fd, give --spill-fd' --pool-fd 9 --spill "$disk"
refused 2 '--spill-bytes: "x" is not a number of bytes' --spill "$disk" --spill-bytes x
refused 4 "the spill file in $work/nothing: no such folder" --spill "$work/nothing"
run inherits medusa-swap run --name lists --pool-fd 9 --spill-fd 8 -- ls -l /proc/self/fd
assert_exit inherits 0
assert_lacks "$work/inherits.out" "$disk"
assert_lacks "$work/inherits.out" medusa-swap-pool
for name in a b c; do end $name; done
end_pool

section 'both are full: out is refused before anything is moved'
make_pool $((36 << 20)),"$disk",$((8 << 20))
for name in a b; do start $name --pool-fd 9 --spill-fd 8; done
grow a 5000
grow b 6000
moved out a out
engine_name=b
swap full out
assert_exit full 6
assert_contains "$work/full.err" 'the pool is too small: it has 37748736 bytes of memory, its spill file in '
assert_contains "$work/full.err" ' 8388608, and '
assert_equal 'nothing is in the file' 0 "$(of b spill_held)"
whole b 'after the refusal'
moved in a in
whole a 'after the refusal of b'
for name in a b; do end $name; done
end_pool
assert_equal 'what is left in the folder' '' "$(ls -A "$disk")"

section 'a disk that is full'
if mkdir "$work/small" && mount -t tmpfs -o size=16m none "$work/small" 2>/dev/null; then
	make_pool $((36 << 20)),"$work/small",$((100 << 20))
	assert_contains "$work/pool.err" 'engines will be refused when it is full'
	for name in a b; do start $name --pool-fd 9 --spill-fd 8; done
	grow a 7000
	grow b 8000
	moved out a out
	engine_name=b
	swap full out
	assert_exit full 6
	assert_contains "$work/full.err" "the spill file in $work/small: writing 2 MiB at offset "
	assert_contains "$work/full.err" 'No space left on device'
	whole b 'after the refusal'
	moved in a in --verify
	whole a 'after the refusal of b'
	for name in a b; do end $name; done
	end_pool
	umount "$work/small"
else
	echo 'SKIP a disk that is full: no file system can be mounted here'
fi
finish
