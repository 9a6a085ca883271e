#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What ranks that go in lockstep assume of each other and of their host (docs/multi-gpu.md, "What is assumed"), each broken once.
. "$(dirname "$0")/lib.sh"
. tests/e2e/ranks_lib.sh
export COLLECTIVE_MAPPED=1 MEDUSA_RANKS_TIMEOUT=5 # descriptors pass from one namespace to another
bundle=$work/tp2.medusa

ranked live
assert_exit live 0
capture tp2 MEDUSA_RANKS_TIMEOUT=30

all_restored() { # name
	assert_exit "$1" 0
	assert_right "$1"
	# shellcheck disable=SC2086 # words
	assert_restored "$1" holed local $together
}

none_restored() { # name, what each rank says
	assert_exit "$1" 0
	assert_right "$1"
	assert_restored "$1"
	assert_count "$work/$1.err" "nothing is restored: the ranks of this job do not restore together: $2" 2
}

# ---- the same graphs, in the same order, under the same labels ---------------------------------------------------------------
section "another label in one rank"
capture label LAUNCHER_AT_1=SUBJECT_NAMES=reduced=other
assert_in_time label
assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/label.out")"
assert_contains "$work/label.err" "rank 0: refused: (reduced, 1): the ranks of this job do not replay it together: rank 1 is at: the beginning of the poison test of graph other/1; rank 0 is at: the beginning of the poison test of graph reduced/1"
assert_contains "$work/label.err" "rank 1: refused: (other, 1): the ranks of this job do not replay it together: rank 0 is at: the beginning of the poison test of graph reduced/1"
assert_count "$work/label.err" "verification: 3 passed, 0 failed, 0 not compared" 2
restore label2 "$work/label.medusa"
assert_right label2
assert_restored label2 holed local pooled
restore label3 "$bundle" LAUNCHER_AT_1=SUBJECT_NAMES=reduced=other
assert_exit label3 0
assert_right label3
assert_restored label3 local
assert_contains "$work/label3.err" " has asked for another graph than the others (graph 2 in its order)"

section "a graph that one rank does not label"
capture fewer LAUNCHER_AT_1=SUBJECT_NAMES=reduced=
assert_in_time fewer
assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/fewer.out")"
assert_contains "$work/fewer.err" "rank 0: refused: (reduced, 1): "
restore fewer2 "$work/fewer.medusa"
assert_exit fewer2 0
assert_right fewer2
assert_lacks "$work/fewer2.err" "reduced restored"
restore fewer3 "$bundle" LAUNCHER_AT_1=SUBJECT_NAMES=reduced=
assert_exit fewer3 0
assert_in_time fewer3
assert_right fewer3
assert_restored fewer3 local

# ---- the folder --------------------------------------------------------------------------------------------------------------
folder() { # path
	rm -rf "$work/folders"
	mkdir -p "$1"
	chmod 700 "$1"
}

section "a folder whose path is longer than a socket's may be"
long=$work/folders/$(printf 'long%.0s' $(seq 50))/$(printf 'path%.0s' $(seq 50))
folder "$long"
restore long "$bundle" MEDUSA_RANKS_FOLDER="$long"
all_restored long
assert_equal "what is left there" "ranks.lock" "$(ls "$long")"

section "a folder that is none, or that others may write to"
folder "$work/folders"
touch "$work/folders/file"
restore file "$bundle" MEDUSA_RANKS_FOLDER="$work/folders/file"
none_restored file "MEDUSA_RANKS_FOLDER: $work/folders/file: Not a directory"
restore gone "$bundle" MEDUSA_RANKS_FOLDER="$work/folders/gone"
none_restored gone "MEDUSA_RANKS_FOLDER: $work/folders/gone: No such file or directory"
chmod 770 "$work/folders"
restore open "$bundle" MEDUSA_RANKS_FOLDER="$work/folders"
none_restored open "MEDUSA_RANKS_FOLDER: $work/folders: other users may write there"
if [ "$(id -u)" = 0 ]; then
	folder "$work/folders"
	chown 12345 "$work/folders"
	restore owner "$bundle" MEDUSA_RANKS_FOLDER="$work/folders"
	none_restored owner "MEDUSA_RANKS_FOLDER: $work/folders: other users may write there"
else
	echo "a folder of another user: skipped: only root can make one"
fi

section "ranks in two folders"
folder "$work/folders/0"
mkdir -m 700 "$work/folders/1"
restore apart "$bundle" LAUNCHER_AT_0=MEDUSA_RANKS_FOLDER="$work/folders/0" LAUNCHER_AT_1=MEDUSA_RANKS_FOLDER="$work/folders/1"
assert_in_time apart
assert_exit apart 0
assert_right apart
assert_restored apart
assert_contains "$work/apart.err" "nothing is restored: the ranks of this job do not restore together: rank 1 has not come in 5 s, and rank 0 waits no longer"

section "something else where the socket should be"
folder "$work/folders"
restore names "$bundle" MEDUSA_RANKS_FOLDER="$work/folders" LAUNCHER_AT_1=SUBJECT_ASK=local=late & # so rank 0 waits at its socket
for ((turn = 0; turn < 600; turn++)); do
	name=$(cd "$work/folders" && echo *.socket)
	[ "$name" = '*.socket' ] || break
	sleep 0.02
done
wait
assert_equal "the socket's name" 1 "$(grep -c '^ranks-[0-9a-f]*\.socket$' <<<"$name")"
for what in file folder; do
	folder "$work/folders"
	case $what in
	file) echo text >"$work/folders/$name" ;;
	folder) mkdir -p "$work/folders/$name/full" ;;
	esac
	restore there "$bundle" MEDUSA_RANKS_FOLDER="$work/folders"
	case $what in
	file) all_restored there ;; # nobody else may write there, so it has no other owner
	folder) none_restored there "a socket to meet other ranks at: Address already in use" ;;
	esac
done

section "two jobs of one name at once"
folder "$work/folders"
started=$SECONDS
for job in 1 2; do
	restore job$job "$bundle" MEDUSA_JOB=same MEDUSA_RANKS_FOLDER="$work/folders" &
done
wait
took=$((SECONDS - started))
assert_in_time "two jobs" # whoever has met whom
for job in 1 2; do assert_right job$job; done

# ---- namespaces and clocks: one rank in each -------------------------------------------------------------------------------------
engine_itself=$subject
subject=$work/within
# The leak checker cannot stop the threads of a process whose ids are others in its namespace.
# shellcheck disable=SC2016 # the engine's shell expands them
printf '#!/bin/sh\n[ -z "$ASAN_OPTIONS" ] || export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"\n[ "$RANK" != 1 ] || exec unshare $WITHIN "%s" "$@"\nexec "%s" "$@"\n' "$engine_itself" "$engine_itself" >"$subject"
chmod +x "$subject"
while IFS='|' read -r what within; do
	section "$what"
	# shellcheck disable=SC2086 # words
	if ! unshare $within true 2>/dev/null; then
		echo "$what: skipped: this user may not make it"
		continue
	fi
	restore within "$bundle" WITHIN="$within"
	all_restored within
done <<'END'
a process namespace of its own|--pid --fork --kill-child
a user namespace of its own|--user --map-root-user
a clock of its own|--time --monotonic 100000 --fork --kill-child
END
finish
