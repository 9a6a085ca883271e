#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Graphs that hand values on in memory that nobody bound: restored together with right outputs, or captured live, all.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/group_subject
images=$MEDUSA_BUILD/tests/images
export SUBJECT_IMAGE=$images/restore_kernels.host.so
together="is in one group with graph"

captured() { # name, exit code, settings...
	local name=$1 wanted=$2
	shift 2
	run "$name.captured" env "$@" medusa-capture -o "$work/$name.medusa" -- "$subject"
	assert_exit "$name.captured" "$wanted"
}

cold() { # run, artifact, graphs restored, graphs live, settings...
	local name=$1 artifact=$2 restored=$3 live=$4 stored
	shift 4
	stored=$(medusa-inspect --text "$work/$artifact.medusa" | grep -c '^graph label=')
	run "$name" env "$@" medusa-restore "$work/$artifact.medusa" -- "$subject"
	assert_exit "$name" 0
	assert_count "$work/$name.err" " came back" "$restored"
	assert_count "$work/$name.err" " is live: " "$live"
	assert_contains "$work/$name.err" "stats: $restored restored + $((stored - restored)) refused of $stored, "
}

right() { # run: what it computed is what was to be
	checks=$((checks + 1))
	awk -F'out |, wanted ' '$2 != $3 { wrong = 1 } END { exit wrong || !NR }' "$work/$1.out" ||
		fail "right outputs of run '$1'" "$(excerpt "$work/$1.out")"
}

section "a chain of three graphs, each batch size with memory of its own"
captured chain 0
assert_contains "$work/chain.captured.err" "verification: 12 passed, 0 failed, 0 not compared"
cold chain.cold chain 12 0
right chain.cold
cold chain.shuffled chain 12 0 SHUFFLED=1
right chain.shuffled
assert_lacks "$work/chain.shuffled.err" "is launched before"
run chain.inspect medusa-inspect "$work/chain.medusa"
assert_contains "$work/chain.inspect.out" "together with a1/8"
run chain.json medusa-inspect --json "$work/chain.medusa"
assert_count "$work/chain.json.out" '"group": ' 12

section "a chain in two ranks: when one lags, both still get the rest of the chain that they have begun"
unset MEDUSA_RANK MEDUSA_RANKS MEDUSA_JOB MEDUSA_RANKS_FOLDER RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT MASTER_ADDR OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID
launcher="${SAN:+env ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 }tests/e2e/ranks_launcher.py" # as in ranks_lib.sh
run ranks.captured medusa-capture --vary '*' -o "$work/ranks.medusa" -- $launcher 2 "$subject"
assert_exit ranks.captured 0
for slow in a1/4 a2/4; do
	run ranks env MEDUSA_RANKS_TIMEOUT=3 LAUNCHER_AT_1=SLOW=$slow medusa-restore "$work/ranks.medusa" -- $launcher 2 "$subject"
	assert_exit ranks 0
	right ranks
	assert_count "$work/ranks.err" "nothing more is restored: the ranks of this job do not restore together: rank 1 (process " 2
	for graph in a0/4 a1/4 a2/4; do assert_count "$work/ranks.err" "$graph came back" 2; done
	for graph in a0/8 a1/8 a2/8; do assert_count "$work/ranks.err" "$graph is live: the ranks of this job do not restore together: " 2; done
	assert_lacks "$work/ranks.err" "values that they pass to each other"
done

section "memory that goes and comes between two graphs: what one hands to the next is saved, the rest of their memory is not"
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
captured room 0 ROOM=6291456
run room.swapped env ROOM=6291456 SWAPS=1 medusa-swap run --name room --pool-bytes 256M --artifact "$work/room.medusa" -- "$subject"
assert_exit room.swapped 0
assert_count "$work/room.swapped.err" " came back" 12
right room.swapped
assert_lacks "$work/room.swapped.err" "did not go and come"
assert_at_least "bytes that were not saved" 16777216 "$(sed -n 's/.* \([0-9]*\) of them discarded$/\1/p' "$work/room.swapped.err" | sort -n | tail -1)"

section "batch sizes that share memory"
captured shared 0 SHARED=1
cold shared.cold shared 12 0 SHARED=1
right shared.cold
run shared.verified env SHARED=1 medusa-verify "$work/shared.medusa" -- "$subject"
assert_exit shared.verified 0

section "two chains: each for itself"
captured two 0 CHAINS=1
cold two.cold two 24 0 CHAINS=1
right two.cold
captured one 1 CHAINS=1 REFUSED=b1
assert_contains "$work/one.captured.err" "refused: (b0, 4): $together b1/4 (they pass values through unbound memory), which is refused: refused by the engine: the engine knows better"
cold one.cold one 12 12 CHAINS=1
right one.cold

section "a graph that cannot be restored"
captured refused 1 REFUSED=a1
assert_count "$work/refused.captured.err" "refused: (a" 12
cold refused.cold refused 0 12
right refused.cold

section "a graph that the verification has not seen"
captured unseen 1 UNLABELLED=a1
assert_contains "$work/unseen.captured.err" "refused: (a0, 2): not published alone: it $together a1/2"
cold unseen.cold unseen 0 12
right unseen.cold

section "state that goes on to the next replay of the same graph"
captured carries 1 CARRIES=1
assert_contains "$work/carries.captured.err" "refused: (a1, 1): reads what its own last replay wrote to unbound memory, and passes it on"
run carries.live env CARRIES=1 "$subject"
cold carries.cold carries 0 12 CARRIES=1
assert_same_file "$work/carries.live.out" "$work/carries.cold.out"

section "a value that is written once and read again and again"
captured table 1 TABLE=1 SHARED=1
assert_contains "$work/table.captured.err" "although no other graph had written the unbound memory that it reads"
cold table.cold table 0 12 TABLE=1 SHARED=1
right table.cold

section "graphs that are launched before what they read was written"
captured backward 1 BACKWARD=1
assert_contains "$work/backward.captured.err" "refused: (a2, 1): verification failed: the engine launched it although no other graph had written the unbound memory that it reads"
cold backward.cold backward 0 12 BACKWARD=1
right backward.cold
cold early chain 12 0 EARLY=1
right early
assert_count "$work/early.err" "graph a2/1 is launched before another graph has written the unbound memory that it reads" 1

section "one of them fails at the cold start"
cold smaller chain 0 12 SMALLER=a.out
right smaller
assert_contains "$work/smaller.err" "a0/1 is live: it $together a2/1, which is not restored: binding \"a.out\": artifact has 2048 bytes, the engine 1024"
cold smaller.two two 12 12 CHAINS=1 SMALLER=b.out
right smaller.two
cold fault chain 9 3 HOSTCUDA_FAULT=cuGraphInstantiateWithFlags:5:OUT_OF_MEMORY
right fault
assert_count "$work/fault.err" " is live: it $together" 2
cold fault.shared shared 0 12 SHARED=1 HOSTCUDA_FAULT=cuGraphInstantiateWithFlags:11:OUT_OF_MEMORY
right fault.shared
assert_count "$work/fault.shared.err" " is live: it $together" 11

section "the engine asks for some of them alone"
cold live chain 0 12 LIVE=a0
right live
assert_contains "$work/live.err" "a1/1 is live: it $together a0/1, which is not restored: the engine has captured it live"
# The background stops for a while after each of its first steps, while the engine captures.
for step in $(seq 24); do
	cold "late.$step" chain 0 12 LIVE=a0 INJECT="late:$step" INJECT_THREAD=medusa-restore INJECT_FROM=libmedusa-restore.so \
		LD_PRELOAD="$MEDUSA_BUILD/tests/faults/inject.so"
	right "late.$step"
done
cold split chain 4 8 LIVE=a1
assert_contains "$work/split.err" "graph a1/1 is not restored, and graph a0/1 of the same group was handed out before"
assert_contains "$work/split.err" "a1/1 is not named: graph a1/1 was captured live, and graph a0/1 of the same group was handed out"
for how in HURRY=1 "HURRY=1 NAMELESS=1"; do
	# shellcheck disable=SC2086 # settings
	run hurry env $how medusa-restore "$work/shared.medusa" -- env SHARED=1 "$subject"
	assert_exit hurry 0
	right hurry
done

section "a binding that is moved when one of them was handed out"
cold late shared 1 11 SHARED=1 SMALLER=a.out LATE=1
assert_contains "$work/late.err" "a.out is not bound: binding \"a.out\" is used by graph a2/1, which is in one group with a graph that was handed out"
assert_contains "$work/late.err" "graph a1/1 is not restored, and graph a0/1 of the same group was handed out before"

section "an artifact that lacks one of them"
run text medusa-inspect --text "$work/chain.medusa"
awk '/^graph label="a1" batch=4 /{skip=1} /^graph label="a1" batch=8 /{skip=0} !skip' "$work/text.out" >"$work/lacks.txt"
run lacks medusa-inspect --from-text "$work/lacks.txt" -o "$work/lacks.medusa"
assert_exit lacks 3
assert_contains "$work/lacks.err" "handed memory 0 of graph a0/4 is not written by one graph of its group and read by another"
finish
