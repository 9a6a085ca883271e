#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks of one job restore a graph together, or capture it live together, whatever happens to one of them.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/ranks_subject
images=("$MEDUSA_BUILD/tests/images/nodes_kernels.host.so" "$MEDUSA_BUILD/tests/images/collective_kernels.host.so")
export MEDUSA_COMMUNICATION_LIBRARIES='libmdcollective.so*'
meet=$work/meet
mkdir -m 700 "$meet"
run_limit=600
unset MEDUSA_RANK MEDUSA_RANKS MEDUSA_JOB RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT MASTER_ADDR OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID

# ---- starting ranks ----------------------------------------------------------------------------------------------------
pids=() codes=()
hurry=5 # seconds: of jobs whose ranks wait for what does not come
declare -A say # what a rank's environment has besides, by rank

start_rank() { # name, rank, ranks, command before the engine's...; output in $work/NAME.RANK.out
	local name=$1 rank=$2 ranks=$3
	shift 3
	# shellcheck disable=SC2086 # words
	( # a shell of its own, which says nothing of a rank that is killed
		env MEDUSA_RANKS_FOLDER="$meet" MEDUSA_JOB="$name" MEDUSA_RANK="$rank" MEDUSA_RANKS="$ranks" MEDUSA_RANKS_TIMEOUT=300 \
			SUBJECT_TOGETHER="$work/$name=$ranks" ${say[$rank]:-} \
			timeout --kill-after=5 "$run_limit" "$@" "$subject" "${images[@]}" "$rank" - >"$work/$name.$rank.out" 2>"$work/$name.$rank.err"
		exit $?
	) 2>/dev/null &
	pids[rank]=$!
}

restoring() { # rank: the command before the engine's
	printf '%s' "medusa-restore $work/apart$1.medusa --"
}

await_ranks() {
	local rank
	codes=()
	for rank in "${!pids[@]}"; do
		wait "${pids[rank]}"
		codes[rank]=$?
	done
	pids=()
}

start_job() { # name, ranks; say[RANK] is taken back
	local rank
	for ((rank = 0; rank < $2; rank++)); do
		# shellcheck disable=SC2046
		start_rank "$1" "$rank" "$2" $(restoring "$rank")
	done
	say=()
}

job() {
	start_job "$@"
	await_ranks
}

await_socket() {
	for _ in $(seq 1200); do
		[ -z "$(ls "$meet"/*.socket 2>/dev/null)" ] || return
		sleep 0.05
	done
	fail "a socket" "$(ls "$meet")"
}

host_first() { # name, ranks: the others come when rank 0 waits for them
	local rank
	rm -f "$meet"/*.socket
	for ((rank = 0; rank < $2; rank++)); do
		# shellcheck disable=SC2046
		start_rank "$1" "$rank" "$2" $(restoring "$rank")
		[ $((rank + 1)) = "$2" ] || await_socket # it is gone when the last one has come
	done
	await_ranks
	say=()
}

hash_of_job() { # what MEDUSA_JOB=NAME is in the name of a socket
	local found
	start_rank hash 0 2 env MEDUSA_JOB="$1" MEDUSA_RANKS_TIMEOUT=$hurry SUBJECT_TOGETHER= medusa-restore "$work/apart0.medusa" -- >&2
	await_socket >&2
	found=$(ls "$meet"/*.socket)
	await_ranks
	found=${found##*ranks-}
	printf '%s' "${found%.socket}"
}

await_text() { # file, text
	for _ in $(seq 600); do
		grep -qF -- "$2" "$1" 2>/dev/null && return
		sleep 0.1
	done
	fail "'$2' in ${1##*/}" "$(excerpt "$1")"
}

# ---- what they have done -------------------------------------------------------------------------------------------------
outcome() { # name, rank: what became of its graphs, in their order
	sed -nE 's/^local(\/[0-9])? (restored|live).*/\2/p' "$work/$1.$2.err" | tr '\n' ' '
}

assert_outcome() { # name, outcome, ranks...
	local name=$1 expected=$2 rank
	shift 2
	for rank in "$@"; do
		assert_equal "what rank $rank of '$name' does with its graphs" "$expected" "$(outcome "$name" "$rank")"
		assert_right "$name" "$rank"
	done
}

assert_right() { # name, rank: however it came by them, all that it has computed is right
	local lines
	lines=$(wc -l <"$work/$1.$2.out")
	assert_equal "what rank $2 of '$1' computes" "$(head -n "$lines" "$work/live.$2.out")" "$(cat "$work/$1.$2.out")"
}

assert_said() { # name, text, ranks...; SECONDS in the text stands for any number, which is the more the busier the machine is
	local name=$1 text=$2 rank
	shift 2
	for rank in "$@"; do
		assert_contains <(sed -E 's/ in [0-9]+ s,/ in SECONDS s,/' "$work/$name.$rank.err") "$text"
	done
}

all='restored restored restored restored ' none='live live live live '

section "live, and captured"
for rank in 0 1 2; do
	start_rank live $rank 3 env
done
await_ranks
for rank in 0 1 2; do
	run captured medusa-capture --vary '*' -o "$work/apart$rank.medusa" -- "$subject" "${images[@]}" $rank -
	assert_exit captured 0
done
assert_equal "what is left in the folder by a capture" "" "$(ls "$meet")"

section "all of them can"
job can 3
assert_equal "exit codes" "0 0 0" "${codes[*]}"
assert_outcome can "$all" 0 1 2
assert_lacks "$work/can.0.err" "medusa restore:"
assert_equal "what is left in the folder" "ranks.lock" "$(ls "$meet")"

section "one has a damaged artifact"
cp "$work/apart1.medusa" "$work/whole.medusa"
head -c 1000 "$work/whole.medusa" >"$work/apart1.medusa"
job damaged 3
assert_outcome damaged "$none" 0 1 2
assert_said damaged "local/3 live: rank 1 cannot restore it: " 0 2
assert_lacks "$work/damaged.1.err" "rank 0"

section "one has none"
touch "$work/missing.1"
rm "$work/apart1.medusa"
for rank in 0 2; do say[$rank]=MEDUSA_RANKS_TIMEOUT=$hurry; done
job missing 3
assert_equal "exit codes" "0 3 0" "${codes[*]}" # the engine of rank 1 is not started
assert_outcome missing "$none" 0 2
assert_said missing "nothing is restored: the ranks of this job do not restore together: rank 1 has not come in SECONDS s, and rank " 0 2
mv "$work/whole.medusa" "$work/apart1.medusa"

section "one has not all of the graphs"
SUBJECT_AT=2=skip run fewer medusa-capture --vary '*' -o "$work/fewer.medusa" -- "$subject" "${images[@]}" 1 -
for rank in 0 1 2; do
	# shellcheck disable=SC2046
	start_rank fewer $rank 3 $(restoring $rank | sed 's/apart1/fewer/')
done
await_ranks
assert_outcome fewer "restored live restored restored " 0 1 2
assert_said fewer "local/2 live: rank 1 cannot restore it: the artifact has no graph local/2" 0 2


for dies in 1 0; do # connected to the socket, or at it
	section "rank $dies is killed before its first graph"
	for rank in 0 1 2; do say[$rank]=MEDUSA_RANKS_TIMEOUT=$hurry; done
	say[$dies]=SUBJECT_AT=1=die
	job early$dies 3
	assert_outcome early$dies "$none" $((1 - dies)) 2
	assert_said early$dies "nothing is restored: the ranks of this job do not restore together: rank $dies has not come in SECONDS s, and rank " $((1 - dies)) 2

	section "rank $dies is killed in mid-restore"
	say[$dies]=SUBJECT_AT=3=die
	host_first killed$dies 3
	assert_outcome killed$dies "restored restored live live " $((1 - dies)) 2
	assert_equal "what rank $dies has done" "restored restored " "$(outcome killed$dies $dies)"
	assert_equal "exit code of rank $dies" 137 "${codes[dies]}"
	ended="rank 1 (process "
	[ $dies = 1 ] || ended="the rank at which the others meet has ended"
	assert_said killed$dies "nothing more is restored: the ranks of this job do not restore together: $ended" $((1 - dies)) 2
	assert_lacks "$work/killed$dies.2.err" "waits no longer"
done
assert_at_least "sockets that the dead have left" 1 "$(ls "$meet" | grep -c socket)"

section "a job of the name of a dead one"
cp -r "$meet" "$work/left"
job killed0 3
assert_outcome killed0 "$all" 0 1 2

section "a rank lags"
for rank in 0 2; do say[$rank]=MEDUSA_RANKS_TIMEOUT=$hurry; done
say[1]=SUBJECT_AT=3=stop
start_job lags 3
for rank in 0 2; do await_text "$work/lags.$rank.err" "local/4 live"; done
assert_said lags "nothing more is restored: the ranks of this job do not restore together: rank 1 (process " 0 2
assert_said lags "has not asked for graph 3 in SECONDS s, and rank " 0 2
assert_equal "what rank 1 has done when it stops" "restored restored " "$(outcome lags 1)"
kill -CONT "$(sed -nE 's/.*rank 1 \(process ([0-9]+)\).*/\1/p' "$work/lags.0.err" | head -n 1)"
await_ranks
assert_outcome lags "restored restored live live " 0 1 2

section "a rank is late, but not too late"
say[1]=SUBJECT_AT=2=late
job late 3
assert_outcome late "$all" 0 1 2

section "a rank does not wait"
say[1]=SUBJECT_AT=2=none
say[2]=SUBJECT_AT=2=late
job hasty 3
assert_outcome hasty "restored live restored restored " 0 1 2

section "a rank asks for another graph"
say[1]=SUBJECT_AT=2=skip
job other 3
assert_outcome other "restored live live live " 0 2
assert_equal "what rank 1 does" "restored live live " "$(outcome other 1)"
assert_contains <(cat "$work"/other.*.err) "has asked for another graph than the others (graph 2 in its order)"

section "a rank captures a graph without asking"
say[1]=SUBJECT_AT=2=take
job take 3
assert_outcome take "restored live restored restored " 0 2
assert_equal "what rank 1 does" "restored restored restored " "$(outcome take 1)"
assert_right take 1
assert_said take "local/2 live: rank 1 cannot restore it: its engine has captured it without asking" 0 2

section "a rank releases its graphs, or goes"
for action in release exit; do
	say[1]=SUBJECT_AT=3=$action
	host_first $action 3
	assert_outcome $action "restored restored live live " 0 2
	assert_said $action "rank 1 (process " 0 2
	assert_said $action ") has ended" 0 2
done
assert_outcome release "restored restored live live " 1

section "a rank closes all descriptors"
say[1]=SUBJECT_AT=3=close
host_first close 3
assert_outcome close "restored restored live live " 0 1 2

section "a rank's child is no rank"
for rank in 0 1; do
	say[$rank]=SUBJECT_AT=3=child
	host_first child$rank 3
	assert_outcome child$rank "$all" 0 1 2
	assert_lacks "$work/child$rank.$rank.err" "the child has got"
done

section "ranks of another number"
for rank in 0 2; do say[$rank]="MEDUSA_RANKS_TIMEOUT=$hurry"; done
say[1]=MEDUSA_RANKS=4
job number 3
assert_outcome number "$none" 0 1 2
assert_contains <(cat "$work"/number.*.err) " says that there are "

section "a rank that comes twice"
for rank in 0 2; do say[$rank]="MEDUSA_RANKS_TIMEOUT=$hurry"; done
say[1]=MEDUSA_RANK=2
job twice 3
assert_outcome twice "$none" 0 1 2
assert_contains <(cat "$work"/twice.*.err) "rank 2 has come twice, as processes "

section "two jobs at once"
for other in 1 2; do
	for rank in 0 1 2; do
		# shellcheck disable=SC2046
		start_rank both$other $rank 3 $(restoring $rank)
		beside[other * 3 + rank]=${pids[rank]}
	done
done
for pid in "${beside[@]}"; do
	wait "$pid"
	assert_equal "exit code" 0 $?
done
pids=()
for other in 1 2; do assert_outcome both$other "$all" 0 1 2; done

# ---- who else comes to the socket ------------------------------------------------------------------------------------------
section "somebody else at the socket"
for how in garbage half nothing pieces flood closed; do
	start_rank hostile$how 0 2 medusa-restore "$work/apart0.medusa" --
	await_socket
	run stranger python3 tests/e2e/ranks_stranger.py "$meet"/*.socket $how
	assert_exit stranger 0
	start_rank hostile$how 1 2 medusa-restore "$work/apart1.medusa" --
	await_ranks
	assert_outcome hostile$how "$all" 0 1
done
assert_contains "$work/hostilegarbage.0.err" "has sent something that is no greeting of a rank"

section "somebody else has the socket"
for how in silent wrong closes gone; do
	name=squat$how
	socket=$meet/ranks-$(hash_of_job $name).socket
	python3 tests/e2e/ranks_stranger.py "$socket" listen-$how >"$work/squatter" 2>&1 &
	squatter=$!
	for _ in $(seq 1200); do [ -S "$socket" ] && break; sleep 0.05; done
	[ $how = gone ] || for rank in 0 1; do say[$rank]=MEDUSA_RANKS_TIMEOUT=$hurry; done
	job $name 2
	kill $squatter 2>/dev/null
	wait $squatter
	expected=$none
	[ $how = gone ] && expected=$all # nobody is there any more
	assert_outcome $name "$expected" 0 1
	rm -f "$socket"
done
assert_contains "$work/squatwrong.0.err" "what answers there is no rank"

# ---- who is a rank ---------------------------------------------------------------------------------------------------------
section "a folder that others may write to"
chmod 777 "$meet"
job open 2
chmod 700 "$meet"
assert_outcome open "$none" 0 1
assert_said open "MEDUSA_RANKS_FOLDER: $meet: other users may write there" 0 1

section "variables of launchers"
rm -f "$meet"/*
plain=(env -u MEDUSA_RANK -u MEDUSA_RANKS -u MEDUSA_JOB)
launched() { # name, what rank 0 has, what rank 1 has: words with RANK for the rank
	local rank
	for rank in 0 1; do
		# shellcheck disable=SC2086
		start_rank "$1" $rank 2 "${plain[@]}" ${2//RANKNUMBER/$rank} medusa-restore "$work/apart$rank.medusa" --
	done
	await_ranks
}
number=0
while read -r variables; do
	number=$((number + 1))
	launched launcher$number "$variables"
	assert_outcome launcher$number "$all" 0 1
	assert_equal "what is left in the folder by ${variables%% *}" "ranks.lock" "$(ls "$meet")"
	rm -f "$meet"/*
done <<'END'
RANK=RANKNUMBER WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none
OMPI_COMM_WORLD_RANK=RANKNUMBER OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=prterun-1@1
PMI_RANK=RANKNUMBER PMI_SIZE=2 PMI_JOBID=7
SLURM_PROCID=RANKNUMBER SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1
END
while IFS='|' read -r variables why; do
	number=$((number + 1))
	launched launcher$number "$variables"
	assert_outcome launcher$number "$none" 0 1
	assert_said launcher$number "$why" 0 1
done <<'END'
RANK=RANKNUMBER WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_PORT=29500|the job has ranks on several hosts (LOCAL_WORLD_SIZE), and ranks meet on one host alone
SLURM_PROCID=RANKNUMBER SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_NUM_NODES=2|the job has ranks on several hosts (SLURM_STEP_NUM_NODES)
RANK=RANKNUMBER WORLD_SIZE=2|nothing tells this job from others that may meet in MEDUSA_RANKS_FOLDER: set MEDUSA_JOB
RANK=xRANKNUMBER WORLD_SIZE=2 MASTER_PORT=29500|RANK: "x
RANK=RANKNUMBER WORLD_SIZE=two MASTER_PORT=29500|WORLD_SIZE: "two" is no number from 1 to 256
RANK=RANKNUMBER MASTER_PORT=29500|WORLD_SIZE: "" is no number
RANK=2 WORLD_SIZE=2 MASTER_PORT=29500|RANK: "2" is no number from 0 to 1
RANK=RANKNUMBER WORLD_SIZE=2 MASTER_PORT=29500 MEDUSA_RANKS_TIMEOUT=0|MEDUSA_RANKS_TIMEOUT: "0" is no number from 1 to 86400
END

section "alone"
rm -f "$meet"/*
launched alone "RANK=0 WORLD_SIZE=1"
assert_outcome alone "$all" 0 1
launched nobody ""
assert_outcome nobody "$all" 0 1
for rank in 0 1; do
	start_rank folderless $rank 2 env -u MEDUSA_RANKS_FOLDER medusa-restore "$work/apart$rank.medusa" --
done
await_ranks
assert_outcome folderless "$all" 0 1
assert_equal "what these have made in the folder" "" "$(ls "$meet")"
finish
