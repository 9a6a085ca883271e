# SPDX-License-Identifier: Apache-2.0
# Sourced by test_ranks_*.sh behind lib.sh: an engine whose ranks communicate, below a launcher; $ranks says how many there are.
unset MEDUSA_RANK MEDUSA_RANKS MEDUSA_JOB MEDUSA_RANKS_FOLDER RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT MASTER_ADDR OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID
export MEDUSA_COMMUNICATION_LIBRARIES='libmdcollective.so*' MEDUSA_RANKS_TIMEOUT=30
subject=$MEDUSA_BUILD/tests/subjects/ranks_subject
images=("$MEDUSA_BUILD/tests/images/nodes_kernels.host.so" "$MEDUSA_BUILD/tests/images/collective_kernels.host.so")
# Python, and a shell that starts it, never give back all that they take; the launcher's ranks are looked at again.
launcher="${SAN:+env ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 }tests/e2e/ranks_launcher.py"
ranks=2
run_limit=200
deadline=90 # seconds: no rank waits longer for one that is gone
together="pooled reduced"

ranked() { # name, assignments and command...: with the engine's ranks behind it
	local name=$1 started=$SECONDS
	shift
	run "$name" env "$@" $launcher "$ranks" "$subject" "${images[@]}" RANK "$work/meet.$name"
	took=$((SECONDS - started))
}

capture() { # name, assignments...
	local name=$1
	shift
	ranked "$name" "$@" medusa-capture --vary '*' -o "$work/$name.medusa" --
}

restore() { # name, bundle, assignments...
	local name=$1 from=$2
	shift 2
	ranked "$name" "$@" medusa-restore "$from" --
}

assert_right() { # name; the results of a start without Medusa are live.out
	assert_equal "what the ranks of '$1' compute" "$(sort "$work/live.out")" "$(sort "$work/$1.out")"
}

assert_restored() { # name, graphs that all ranks restore...
	local name=$1
	shift
	assert_equal "graphs restored in '$name', and by how many ranks" "$([ $# = 0 ] || printf "$ranks %s\n" "$@" | sort)" \
		"$(sed -n 's/^\([a-z]*\) restored$/\1/p' "$work/$name.err" | sort | uniq -c | sed 's/^ *//')"
}

assert_in_time() { # name
	[ "$took" -lt $deadline ] || fail "an end of '$1' within $deadline s" "$took s"
	checks=$((checks + 1))
}

assert_unhurt() { # name, graph whose results depend on the time: what the engine computes meanwhile is right, and no test went wrong
	assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out" | grep -v "${2:-^\$}")" "$(sort -u "$work/$1.out" | grep -v "${2:-^\$}")"
	assert_in_time "$1"
}

refused_by_both() { # name of a run, reason, graphs...
	local name=$1 reason=$2 graph
	shift 2
	for graph; do
		assert_count "$work/$name.err" "refused: ($graph, 1): $reason" 2
	done
}
