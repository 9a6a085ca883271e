#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a real GPU: what a graph computes from besides what is bound (docs/inputs.md) is kept, compared, or refused by name.
. "$(dirname "$0")/cases.sh"
subjects=$MEDUSA_BUILD/tests/subjects

# chain GRAPHS TEXT [option of medusa-capture...] -- COMMAND...: that many graphs are restored, and capture says TEXT.
chain() {
	local count=$1 text=$2 found options=()
	shift 2
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	live "$@"
	captured 1 ${options[@]+"${options[@]}"} -- "$@"
	grep -qF -- "$text" captured.err || fails "not said: $text; $(grep 'refused\|verification' captured.err | tail -n 1)"
	restored -- "$@"
	[ -z "$(awk -F'out |, wanted ' 'NF > 2 && $2 != $3' restored.out)" ] || fails "wrong: $(grep wanted restored.out | head -n 1)"
	found=$(grep -cE "$came" restored.err)
	[ "$found" = "$count" ] || fails "$found graphs restored, not $count: $(grep -m 1 'live' restored.err)"
	passes "$count graphs restored; $text"
}

tables() { # table, graphs restored, text
	export TABLE=$1 IMAGE=$images/tables_kernels.$suffix
	came='rows restored'
	chain "$2" "$3" -- "$subjects/tables_subject"
}

unset_one() { # parameter, graphs restored, text, options...
	local what=$1 count=$2 text=$3
	shift 3
	came=' is restored'
	chain "$count" "$text" "$@" -- "$subjects/unset_subject" "$images/unset_kernels.$suffix" "$what" 1 2 3
}

given() { # what the graph does, how the engine uses its memory, role that it is bound with, graphs restored, text, options...
	export SUBJECT=$1 BY=$2 BIND=$3 IMAGE=$images/given_kernels.$suffix
	local count=$4 text=$5
	shift 5
	came='^[a-z]* restored$'
	chain "$count" "$text" "$@" -- "$subjects/given_subject"
}

# A limit that is raised in time is no hindrance; one that a cold start raises too late costs the graph, not the engine.
limit() { # kernel, name of the limit
	local engine=("$subjects/limits_subject" "$images/limits_kernels.$suffix" "$1")
	live "${engine[@]}" early
	captured 0 -- "${engine[@]}" early
	restored -- "${engine[@]}" early
	grep -q 'graph is restored' restored.err || fails "$(grep 'graph is' restored.err)"
	restored -- "${engine[@]}" warm_up
	grep -q "graph is live the context's $2 limit is [0-9]*, the graphs were captured with" restored.err || fails "$(grep 'graph is' restored.err)"
	passes "restored with the limit, live below it"
}

group() { # graphs, settings...
	local count=$1
	shift
	export SUBJECT_IMAGE=$images/restore_kernels.$suffix
	came=' came back'
	chain "$count" "verification: $count passed, 0 failed, 0 not compared" -- env ${@+"$@"} "$subjects/group_subject"
}

variable() { # case
	local engine=("$subjects/variables_subject" "$images/lookup_kernels.$suffix" "$1") when
	live env SUBJECT_IN_TIME=1 "${engine[@]}"
	captured 0 -- env SUBJECT_SETS_LATE=1 "${engine[@]}"
	for when in SUBJECT_SETS_LATE SUBJECT_LOADS_LATE SUBJECT_IN_TIME; do
		restored -- env $when=1 "${engine[@]}"
		grep -q "^$1 restored" restored.err || fails "$when: $(grep "^$1 " restored.err)"
	done
	passes "restored when it is set before, late, or loaded late"
}

all_right="verification: 1 passed, 0 failed, 0 not compared"
by_engine="kernel given_copy, used outside of graphs, is given memory that the graph"
in_struct="in parameter 1, a struct (bytes 16..23): bind it"
one() { # case
	local kind=${1%%.*} name=${1#*.}
	case $1 in
	tables.differs) tables differs 0 "differs between the captures; no recorded input makes the graph read bytes" ;;
	tables.large) tables large 0 "it is too large to be saved; no recorded input makes the graph read bytes" ;;
	unset.number) unset_one number 0 "node 0 (number4): parameter 2 (bytes 16..19) is " ;;
	unset.time) unset_one time 0 "node 0 (number8): parameter 2 (bytes 16..23) is " ;;
	unset.flag) unset_one flag 0 "node 0 (number1): parameter 2 (bytes 16..16) is " ;;
	unset.cxx_number) unset_one cxx_number 0 "node 0 (_Z10cxx_numberPfPKfm): parameter 2 (bytes 16..23) is " ;;
	unset.accepted) unset_one number 1 "$all_right" --accept-process-values ;;
	unset.refused) unset_one padding 0 ", of a struct, differ between the captures, and --refuse-unset was given" --refuse-unset ;;
	given.reads) given reads launch "" 0 "$by_engine writes " ;;
	given.writes) given writes "" "" 0 "$by_engine reads " ;;
	given.table) given table "" "" 0 "$by_engine reads " ;;
	given.accepted) given writes "" "" 1 "$all_right" --accept-unvaried ;;
	given.scratch) given scratch "" "" 0 "$by_engine writes " ;;
	given.stale) given stale "" "" 0 "$in_struct" ;;
	given.stale_all) SCRATCH=all given stale "" "" 1 "ignored 1 addresses that were given to kernels outside of graphs" ;;
	given.stale_part) SCRATCH=part given stale "" "" 0 "$in_struct" ;;
	given.stale_again) SCRATCH=again given stale "" "" 0 "$in_struct" ;;
	given.stale_launch) SCRATCH=all given stale launch "" 0 "$by_engine writes " ;;
	given.stale_2d) SCRATCH=all given stale 2d "" 0 " reads " ;;
	given.warm) given warm "" "" 2 "verification: 2 passed, 0 failed, 0 not compared" ;;
	given.bound_*) given "${name#bound_}" "" state 1 "$all_right" ;;
	given.2d | given.peer | given.3d_peer) given reads "$name" "" 0 " reads " ;;
	given.set_2d8 | given.set_2d32) given writes "$name" "" 0 " writes " ;;
	groups.chain) group 12 ;;
	groups.shared) group 12 SHARED=1 ;;
	groups.two) group 24 CHAINS=1 ;;
	limits.deep) limit deep stack ;;
	limits.heap) limit heap heap ;;
	tables.*) tables "$name" 1 "$all_right" ;;
	unset.*) unset_one "$name" 1 "$all_right" ;;
	variables.*) variable "$name" ;;
	*) fails "no case has this name" ;;
	esac
}

begin "$@"
built "$subjects"/{tables,unset,given,limits,group,variables}_subject "$images"/{tables,unset,given,limits,restore,lookup}_kernels.$suffix
cases tables.{experts,rows,beside,one,made,pointers,apart,pair,set,differs,large} \
	unset.{number,time,flag,cxx_number,accepted,refused,gap,padding,empty,member,stale} \
	given.{reads,writes,table,accepted,scratch,stale,stale_all,stale_part,stale_again,stale_launch,stale_2d,warm,bound_reads,bound_writes,bound_scratch,2d,peer,3d_peer,set_2d8,set_2d32} \
	groups.{chain,shared,two} limits.{deep,heap} \
	variables.{private_table,bound_table,same_module,same_module_written,other_module,chain,entries,itself,parameter,plain}
finish
