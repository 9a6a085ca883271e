#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-swap in --gpu-neighbours: a part of the memory comes over links of other devices, and the engine computes what it
# computes without.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh
export HOSTCUDA_SHARED=$work/devices HOSTCUDA_CONTEXT=16M HOSTCUDA_MEM=1G HOSTCUDA_DEVICES=3 CUDA_VISIBLE_DEVICES=0
export HOSTCUDA_H2D_GBPS=${LINK:-0.2} # bytes a nanosecond; all of the memory takes about 0.2 s over one link
expected 'work 3' 'work 2'

section 'memory comes over all links'
begin_large all --gpu-neighbours -- 2
until_carrier 2
by_first=0 by_second=0 by_itself=0
least=20000000
came_enough() { [ $by_first -ge $least ] && [ $by_second -ge $least ] && [ $by_itself -ge $least ]; }
for round in $(seq 120); do
	[ "$round" -le "${NEIGHBOUR_ROUNDS:-20}" ] || ! came_enough || break # where there is much to do, the carrier begins late
	come_in_helped 0 $([ $((round % 5)) = 0 ] && echo --verify)
	first=$((after[1] - before[1])) second=$((after[2] - before[2]))
	assert_equal "round $round: what came by neighbours" $((first + second)) "$carried"
	[ "$first" = 0 ] || assert_contains "$work/in.json" "GPU-686f7374-6375-6461-0000-000000000001\": $first"
	by_first=$((by_first + first)) by_second=$((by_second + second)) by_itself=$((by_itself + $(number in copied) - carried))
	if [ "$round" = 2 ]; then files=$(ls "/proc/$(engine_pid)/fd" | wc -l) maps=$(wc -l <"/proc/$(carrier)/maps") held=$(ls "/proc/$(carrier)/fd" | wc -l); fi
done
for by in $by_first $by_second $by_itself; do assert_at_least 'what came over each link' $least "$by"; done
assert_equal 'descriptors of the engine' "$files" "$(ls "/proc/$(engine_pid)/fd" | wc -l)"
assert_equal 'descriptors of the carrier' "$held" "$(ls "/proc/$(carrier)/fd" | wc -l)"
assert_at_most 'mappings of the carrier' $((maps + 8)) "$(wc -l <"/proc/$(carrier)/maps")"
for _ in $(seq 24); do
	run told medusa-swap out all
	run told medusa-swap in all --gpu-neighbours
	grep -q 'of them came over' "$work/told.out" && break
done
assert_contains "$work/told.out" 'MB of them came over links of other GPUs'
done_swap out out
client=$MEDUSA_BUILD/tests/subjects/swap_asker
run program "$client" neighbours all overlap
assert_contains "$work/program.out" 'options->gpu_neighbours and overlap are set: choose one'
run program "$client" out all neighbours
assert_contains "$work/program.out" 'medusa_swap_out: options->gpu_neighbours is set, which is for medusa_swap_in'
for _ in $(seq 24); do
	run program "$client" neighbours all
	grep -q 'neighbours [1-9]' "$work/program.out" && break
	done_swap out out
done
assert_contains "$work/program.out" 'neighbours bytes'
assert_lacks "$work/program.out" 'neighbours 0'
done_swap out out
swap both in --gpu-neighbours --overlap
assert_exit both 2
assert_contains "$work/both.err" '--gpu-neighbours and --overlap: choose one'
printf '{"medusa_swap": 2, "role": "command", "do": "in", "neighbours": true, "overlap": true}\n' >"$work/line"
python3 -c "
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect('$place/all.sock'); s.sendall(open('$work/line', 'rb').read()); print(s.recv(4096).decode())" >"$work/refusal"
assert_contains "$work/refusal" 'neighbours cannot fill memory while the engine uses it'
assert_equal 'it is' out "$(state state)"
done_swap in in
assert_equal 'what came by neighbours without being asked' 0 "$(number in copied_by_neighbours)"
assert_sum
mine=$(carrier)
done_swap release release
for _ in $(seq 1200); do lives "$mine" || break; sleep 0.05; done
assert_equal 'the carrier after release' '' "$(carrier)"
close_engine

section 'it is started when it is first asked for'
begin_large late -- 0
assert_equal 'the carrier' '' "$(carrier)"
done_swap out out
done_swap in in --gpu-neighbours
assert_sum
until_carrier 2
come_in_helped 0
close_engine

section 'of two processes, one gets the neighbours'
mkfifo "$work/left.in" "$work/left.out" "$work/right.in" "$work/right.out"
cat >"$work/pair.sh" <<'END'
"$@" <"$WORK/left.in" >"$WORK/left.out" &
"$@" <"$WORK/right.in" >"$WORK/right.out" &
wait
END
WORK=$work medusa-swap run --name pair --pool-bytes 256M --gpu-neighbours -- bash "$work/pair.sh" "${subject[@]}" 0 2>"$work/pair.err" &
pair=$!
exec {left_in}>"$work/left.in" {right_in}>"$work/right.in" {left_out}<"$work/left.out" {right_out}<"$work/right.out"
engine_name=pair
both() { # what both processes say
	printf '%s\n' "$1" >&"$left_in"
	printf '%s\n' "$2" >&"$right_in"
	read -r -t "$patience" of_left <&"$left_out"
	read -r -t "$patience" of_right <&"$right_out"
}
read -r -t "$patience" of_left <&"$left_out"
read -r -t "$patience" of_right <&"$right_out"
both 'alloc 20' 'alloc 40'
both sum sum
left=$of_left right=$of_right
for _ in $(seq 1200); do [ "$(state engines)" = 2 ] && [ "$(state swappable)" -gt 60000000 ] && break; sleep 0.05; done
until_carrier 2
by_pair=0
for round in $(seq 24); do
	done_swap out out
	assert_equal 'processes that are out' 2 "$(state engines_out)"
	done_swap in in --gpu-neighbours --verify
	both sum sum
	assert_equal 'what both hold' "$left, $right" "$of_left, $of_right"
	by_pair=$((by_pair + $(number in copied_by_neighbours)))
	[ "$round" -lt 6 ] || [ "$by_pair" -lt 2000000 ] || break # the carrier may come too late, as above
done
assert_at_least 'what came by neighbours' 2000000 "$by_pair"
exec {left_in}>&- {right_in}>&-
wait "$pair"
exec {left_out}<&- {right_out}<&-

section 'where no neighbour is of use, the own link does it'
none() { # name, part of the reason
	local round
	for round in $(seq 240); do
		done_swap out out
		done_swap in in --gpu-neighbours
		assert_equal 'what came by neighbours' 0 "$(number in copied_by_neighbours)"
		assert_sum
		[ "$round" = 1 ] || ! grep -qF "$1" "$work/in.json" || break # the carrier of the first times may not be ready
		sleep 0.25
	done
	assert_contains "$work/in.json" "$1"
	close_engine
}
HOSTCUDA_NVLINK=none begin_large apart --gpu-neighbours -- 0
none 'cannot access its memory'
HOSTCUDA_DEVICES=1 begin_large lonely --gpu-neighbours -- 0
none 'there is no other GPU'
MEDUSA_SWAP_NEIGHBOURS=none begin_large named -- 0
none 'MEDUSA_SWAP_NEIGHBOURS=none: cuInit: CUDA_ERROR_NO_DEVICE'
HOSTCUDA_MEM=200M begin_large full --gpu-neighbours -- 0
none 'bytes free, and 268435456 are needed'
HOSTCUDA_FAULT=cuMemExportToShareableHandle:*:NOT_SUPPORTED begin_large kept --gpu-neighbours -- 0
until_carrier 2
done_swap out out
done_swap in in --gpu-neighbours
assert_equal 'what came by neighbours' 0 "$(number in copied_by_neighbours)"
assert_sum
close_engine

finish
