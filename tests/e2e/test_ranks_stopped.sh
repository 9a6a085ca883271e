#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped, lags or dies while ranks that communicate restore, capture or verify: all ranks capture live, by name and in time, or none does.
. "$(dirname "$0")/lib.sh"
. tests/e2e/ranks_lib.sh
export MEDUSA_RANKS_TIMEOUT=3
bundle=$work/tp2.medusa
lost="the ranks of this job do not restore together: rank"

begin() { # name, command...: as ranked, beside the script
	local name=$1
	(
		ranked "$@"
		echo "$code $took" >"$work/$name.ended"
	) &
	beside=$!
}

await_end() { # name
	wait "$beside"
	read -r code took <"$work/$1.ended"
	assert_in_time "$1"
}

await_text() { # name of a run, text
	local turn
	for ((turn = 0; turn < 600; turn++)); do
		grep -qF -- "$2" "$work/$1.err" 2>/dev/null && return
		sleep 0.1
	done
	fail "'$2' in time" "$(excerpt "$work/$1.err")"
}

process_of() { # name of a run, rank, which of the processes that say so (1: the first)
	local turn process=
	for ((turn = 0; turn < 600; turn++)); do
		process=$(sed -n "s/^rank $2 is process //p" "$work/$1.err" 2>/dev/null | sed -n "${3:-1}p")
		[ -z "$process" ] || break
		sleep 0.1
	done
	echo "${process:-none}"
}

await_stop() { # process: all of its threads stand still
	local turn status='none ' # it stays so where there is no such process
	for ((turn = 0; turn < 600; turn++)); do
		{ read -r -d '' status <"/proc/$1/stat"; } 2>/dev/null
		[[ ${status##*) } == T* ]] && return
		[ "$status" != 'none ' ] || break
		sleep 0.1
	done
	fail "process $1 to be stopped" "${status:0:60}"
}

ranked live
assert_exit live 0
capture tp2 MEDUSA_RANKS_TIMEOUT=30
restore all "$bundle"
# shellcheck disable=SC2086 # words
assert_restored all holed local $together

for rank in 0 1; do # one of them has the socket
	other=$((1 - rank))
	section "rank $rank is stopped before it asks for a graph"
	begin asks LAUNCHER_AT_$rank=SUBJECT_ASK=pooled=stop medusa-restore "$bundle" --
	process=$(process_of asks $rank)
	await_text asks "pooled live: $lost $rank (process "
	kill -CONT "$process"
	await_end asks
	assert_exit asks 0
	assert_right asks
	assert_restored asks holed local reduced
	assert_count "$work/asks.err" "pooled live: $lost $rank (process " 2
	assert_contains "$work/asks.err" "has not asked for graph 6 in 3 s, and rank $other waits no longer"

	section "rank $rank is stopped before it comes"
	begin comes LAUNCHER_AT_$rank=SUBJECT_ASK=local=stop medusa-restore "$bundle" --
	process=$(process_of comes $rank)
	await_text comes "local live: $lost $rank has not come in 3 s, and rank $other waits no longer"
	kill -CONT "$process"
	await_end comes
	assert_exit comes 0
	assert_right comes
	assert_restored comes

	section "rank $rank is stopped when all have a graph, for longer than others wait"
	begin launches LAUNCHER_AT_$rank=SUBJECT_LAUNCH=reduced=stop medusa-restore "$bundle" --
	process=$(process_of launches $rank)
	await_stop "$process"
	sleep 4 # the other rank waits in its kernel, as it does for a rank without Medusa
	kill -CONT "$process"
	await_end launches
	assert_exit launches 0
	assert_right launches
	# shellcheck disable=SC2086
	assert_restored launches holed local $together

	section "rank $rank lags"
	restore lags "$bundle" LAUNCHER_AT_$rank=SUBJECT_ASK=reduced=late
	assert_exit lags 0
	assert_in_time lags
	assert_right lags
	assert_restored lags local
	assert_count "$work/lags.err" "reduced live: $lost $rank (process " 2

	section "rank $rank is killed when it is stopped"
	begin killed LAUNCHER_LETS=1 LAUNCHER_AT_$rank=SUBJECT_ASK=pooled=stop medusa-restore "$bundle" --
	process=$(process_of killed $rank)
	await_text killed "pooled live: $lost $rank (process "
	kill -KILL "$process"
	await_end killed
	assert_at_least "exit code" 1 "$code"
	assert_lacks "$work/killed.err" "pooled restored"

	section "rank $rank dies before it asks for a graph"
	LAUNCHER_LETS=1 restore dies "$bundle" MEDUSA_RANKS_TIMEOUT=60 LAUNCHER_AT_$rank=SUBJECT_ASK=pooled=die
	assert_in_time dies # though it might wait longer for one that lives
	assert_at_least "exit code" 1 "$code"
	assert_count "$work/dies.err" "pooled live: the ranks of this job do not restore together: " 1
	assert_lacks "$work/dies.err" "pooled restored"
done

section "a rank is stopped for good before it asks, and all graphs are required"
for rank in 0 1; do
	ranked required LAUNCHER_AT_$rank=SUBJECT_ASK=local=stop MEDUSA_RANKS_TIMEOUT=600 medusa-restore --require all --timeout 2 "$bundle" --
	assert_exit required 1
	assert_in_time required
	assert_contains "$work/required.err" "medusa-restore: 2 s have passed (--timeout)"
	assert_contains "$work/required.err" "medusa-restore: the command is ended"
	assert_equal "ranks that go on" "" "$(pgrep -f "$subject .*$work/meet.required")"
done

section "the rank at the socket is stopped in a capture"
begin proof LAUNCHER_AT_0=SUBJECT_LAUNCH=reduced=stop medusa-capture --vary '*' -o "$work/proof.medusa" --
for time in 1 2 3; do # two captures, and the verification that follows
	process=$(process_of proof 0 $time)
	await_stop "$process"
	sleep 4
	kill -CONT "$process"
done
await_end proof
assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/proof.out")"
for rank in 0 1; do
	assert_contains "$work/proof.err" "rank $rank: refused: (reduced, 1): the ranks of this job do not replay it together: rank 0 "
	assert_contains "$work/proof.err" "rank $rank: verification: 2 passed, 0 failed, 0 not compared"
done
section "a rank is stopped in a verification"
begin verified LAUNCHER_AT_1=SUBJECT_LAUNCH=reduced=stop medusa-verify "$bundle" --
process=$(process_of verified 1)
await_stop "$process"
sleep 4
kill -CONT "$process"
await_end verified
assert_exit verified 1
assert_contains "$work/verified.out" "the ranks of this job do not replay it together: rank 1 "
assert_count "$work/verified.out" "2 passed, " 2

section "the rank at the socket is stopped before others come"
rm -rf "$work/folder"
mkdir -m 700 "$work/folder"
begin host MEDUSA_RANKS_FOLDER="$work/folder" LAUNCHER_AT_0=SUBJECT_ASK=local=say LAUNCHER_AT_1=SUBJECT_ASK=local=stop medusa-restore "$bundle" --
first=$(process_of host 0)
second=$(process_of host 1)
for ((turn = 0; turn < 600; turn++)); do
	[ -z "$(ls "$work/folder"/*.socket 2>/dev/null)" ] || break
	sleep 0.02
done
kill -STOP "$first"
await_stop "$first"
kill -CONT "$second"
await_text host "local live: "
kill -CONT "$first"
await_end host
assert_exit host 0
assert_right host
assert_restored host
assert_contains "$work/host.err" "local live: the ranks of this job do not restore together: the rank that waits for others there does not answer"
finish
