#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One bundle for the ranks of a launcher: captured, restored and verified by one command, whatever happens to a rank or a file.
. "$(dirname "$0")/lib.sh"
unset MEDUSA_RANK MEDUSA_RANKS MEDUSA_JOB MEDUSA_RANKS_FOLDER RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT MASTER_ADDR OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID \
	XDG_RUNTIME_DIR
export MEDUSA_RANKS_TIMEOUT=30
export TMPDIR=$work/tmp # where commands work, which is looked into at the end
mkdir "$TMPDIR"
run_limit=100
subject=("$MEDUSA_BUILD/tests/subjects/ranks_subject" "$MEDUSA_BUILD/tests/images/nodes_kernels.host.so" "$MEDUSA_BUILD/tests/images/collective_kernels.host.so")
launcher="${SAN:+env ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 }tests/e2e/ranks_launcher.py" # as in ranks_lib.sh
ranked=("${subject[@]}" RANK -)
bundle=$work/tp2.medusa

capture_bundle() { # name, ranks, assignments for env...; into $work/NAME.medusa
	local name=$1 ranks=$2
	shift 2
	run "$name" env "$@" medusa-capture --vary '*' -o "$work/$name.medusa" -- $launcher "$ranks" "${ranked[@]}"
}

restore_bundle() { # name, bundle, ranks, assignments for env...; no rank ends before all have come, as is so in a job
	local name=$1 from=$2 ranks=$3
	shift 3
	run "$name" env SUBJECT_TOGETHER="$work/$name=$ranks" "$@" medusa-restore "$from" -- $launcher "$ranks" "${ranked[@]}"
}

# What each rank computes is the same in every run; ranks do not take turns at stdout.
assert_right() { # name, ranks
	assert_equal "what the ranks of '$1' compute" "$(sort "$work/live$2.out")" "$(sort "$work/$1.out")"
}

assert_restored_all() { # name, ranks
	assert_exit "$1" 0
	assert_right "$1" "$2"
	assert_equal "graphs restored in '$1'" $((4 * $2)) "$(grep -c '^local.* restored$' "$work/$1.err")"
}

assert_live_all() { # name, ranks, reason
	assert_exit "$1" 0
	assert_right "$1" "$2"
	assert_equal "graphs restored in '$1'" 0 "$(grep -c '^local.* restored$' "$work/$1.err")"
	assert_contains "$work/$1.err" "$3"
}

state_of() { # folder: its files and what is in them
	(cd "$1" && find . -type f | sort | xargs sha256sum) 2>&1
}

copy_bundle() { # name; $work/NAME.medusa is a copy of the bundle
	rm -rf "$work/$1.medusa"
	cp -r "$bundle" "$work/$1.medusa"
}

for count in 1 2 3; do
	run live$count $launcher $count "${ranked[@]}"
	assert_exit live$count 0
done

# ---- all goes well ---------------------------------------------------------------------------------------------------
section "captured"
capture_bundle tp2 2
assert_exit tp2 0
assert_equal "files" "manifest rank-0.medusa rank-1.medusa" "$(ls "$bundle" | tr '\n' ' ' | sed 's/ $//')"
assert_contains "$work/tp2.err" "medusa-capture: 2 ranks: a bundle, with an artifact for each"
for rank in 0 1; do
	assert_contains "$work/tp2.err" "medusa-capture: rank $rank: capture 2: 4 graphs"
	assert_contains "$work/tp2.err" "medusa-capture: rank $rank: verification: 4 passed, 0 failed, 0 not compared"
	run inspected medusa-inspect "$bundle/rank-$rank.medusa"
	assert_exit inspected 0
done
assert_equal "the manifest's head" "medusa-bundle 1 ranks 2" "$(head -n 2 "$bundle/manifest" | tr '\n' ' ' | sed 's/ $//')"
assert_equal "what is left beside it" "" "$(ls "$work" | grep 'tp2.medusa.')"

section "restored"
restore_bundle restored "$bundle" 2
assert_restored_all restored 2
section "restored where the ranks meet in a folder of the user's"
mkdir -m 700 "$work/meet"
restore_bundle elsewhere "$bundle" 2 MEDUSA_RANKS_FOLDER="$work/meet" MEDUSA_JOB=mine
assert_restored_all elsewhere 2
assert_equal "what is left in the folder" ranks.lock "$(ls "$work/meet")"
section "restored by another launcher"
restore_bundle mpi "$bundle" 2 LAUNCHER_BY=mpi
assert_restored_all mpi 2
section "restored without the command"
run container env "$(preload restore)" MEDUSA_ARTIFACT="$bundle" MEDUSA_RANKS_FOLDER="$work/meet" $launcher 2 "${ranked[@]}"
assert_restored_all container 2
run alone env "$(preload restore)" MEDUSA_ARTIFACT="$bundle" $launcher 2 "${ranked[@]}"
assert_live_all alone 2 "is a bundle, and its ranks are not told where to meet: start them by medusa-restore, or set MEDUSA_RANKS_FOLDER"

section "the command is started by the launcher, once for each rank"
run inside env RANK=1 WORLD_SIZE=2 medusa-restore "$bundle" -- "${ranked[@]}" # one of them: two would write over each other
assert_exit inside 2
assert_contains "$work/inside.err" "is a bundle, and this command has been started as rank 1 of 2"
run inside env MEDUSA_RANKS_FOLDER="$work/meet" $launcher 2 medusa-restore "$bundle" -- "${ranked[@]}"
assert_restored_all inside 2
run insidev env RANK=1 WORLD_SIZE=2 medusa-verify "$bundle" -- "${ranked[@]}"
assert_exit insidev 2
assert_contains "$work/insidev.err" "start it once, with the launcher behind --"
run insidec $launcher 2 medusa-capture --vary '*' -o "$work/apartRANK.medusa" -- "${ranked[@]}"
assert_exit insidec 0
for rank in 0 1; do assert_same_file "$bundle/rank-$rank.medusa" "$work/apart$rank.medusa"; done

section "captured under another launcher"
capture_bundle mpi2 2 LAUNCHER_BY=mpi
assert_exit mpi2 0
restore_bundle mpi2r "$work/mpi2.medusa" 2
assert_restored_all mpi2r 2

section "an engine that forks its ranks"
run forks medusa-capture --vary '*' -o "$work/forks.medusa" -- "${subject[@]}" fork2 -
assert_exit forks 0
run forked medusa-restore "$work/forks.medusa" -- "${subject[@]}" fork2 -
assert_restored_all forked 2
run forkv medusa-verify "$work/forks.medusa" -- "${subject[@]}" fork2 -
assert_exit forkv 0

section "verified"
run verified medusa-verify "$bundle" --junit "$work/junit.xml" -- $launcher 2 "${ranked[@]}"
assert_exit verified 0
assert_contains "$work/verified.out" "rank 1"
assert_count "$work/verified.out" "4 passed, 0 failed, 0 skipped" 2
assert_contains "$work/junit.xml" 'tests="8" failures="0" errors="0" skipped="0"'
assert_contains "$work/junit.xml" 'classname="rank 1 local"'
run json medusa-verify "$bundle" --json -- $launcher 2 "${ranked[@]}"
assert_equal "passed, by rank" "0 4 1 4" "$(python3 -c '
import json, sys
print(*[n for rank in json.load(open(sys.argv[1]))["ranks"] for n in (rank["rank"], rank["passed"])])' "$work/json.out")"
section "verified, and a rank fails"
run vdies medusa-verify "$bundle" -- env LAUNCHER_AT_1=SUBJECT_AT=3=die $launcher 2 "${ranked[@]}"
checks=$((checks + 1))
[ "$code" = 1 ] || [ "$code" = 4 ] || fail "exit code 1 or 4 of 'vdies'" "$code" # by whether the other rank was comparing when it was ended
assert_equal "parts of the report in which all graphs passed" 0 "$(sed '1,/^rank 1/d' "$work/vdies.out" | grep -c '^4 passed, 0 failed, 0 skipped')"
section "verified with fewer ranks"
run vfewer medusa-verify "$bundle" -- $launcher 1 "${ranked[@]}"
assert_exit vfewer 1
assert_contains "$work/vfewer.err" "is a bundle of 2 ranks, and this job has 1"

section "one rank is no bundle"
capture_bundle one 1
assert_exit one 0
assert_equal "the artifact" "regular file" "$(stat -c %F "$work/one.medusa")"
run single medusa-restore "$work/one.medusa" -- "${subject[@]}" 0 -
assert_restored_all single 1

section "a process that is no rank"
capture_bundle before 2 LAUNCHER_BEFORE="${subject[*]} 0 -"
assert_exit before 0
run beforer env LAUNCHER_BEFORE="${subject[*]} 0 - >$work/before.helper" medusa-restore "$bundle" -- $launcher 2 "${ranked[@]}"
assert_restored_all beforer 2
assert_same_file "$work/live1.out" "$work/before.helper"
assert_contains "$work/beforer.err" "is a bundle of 2 ranks, and nothing says which rank this process is"
capture_bundle same 2
for rank in 0 1; do assert_same_file "$work/same.medusa/rank-$rank.medusa" "$work/before.medusa/rank-$rank.medusa"; done

section "two jobs of one bundle at once"
for job in 1 2 3; do run_beside both$job medusa-restore "$bundle" -- $launcher 2 "${ranked[@]}"; done
for job in 1 2 3; do
	await_beside both$job
	assert_restored_all both$job 2
done

section "two jobs of different names below one command"
cat >"$work/jobs" <<'END'
#!/bin/bash
# Starts two jobs; one rank of the first one waits for the other one, which is late, when the second job begins.
for job in 1 2; do
	LAUNCHER_AT_0=MASTER_PORT=2950$job LAUNCHER_AT_1="MASTER_PORT=2950$job $([ $job = 2 ] || echo SUBJECT_AT=1=late)" \
		SUBJECT_TOGETHER="$work/job.$job=2" "$@" >"$work/job.$job.out" 2>"$work/job.$job.err" &
	for _ in $(seq 500); do [ -z "$(ls "$MEDUSA_RANKS_FOLDER"/*.socket 2>/dev/null)" ] || break; sleep 0.01; done
done
wait
END
chmod +x "$work/jobs"
run jobs env work="$work" medusa-restore "$bundle" -- "$work/jobs" $launcher 2 "${ranked[@]}"
assert_exit jobs 0
for job in 1 2; do
	assert_right job.$job 2
	assert_equal "graphs restored in job $job" 8 "$(grep -c '^local.* restored$' "$work/job.$job.err")"
done

section "one rank has another capture's bundle, which has the same graphs"
run second env SOURCE_DATE_EPOCH=1700000001 medusa-capture --vary '*' -o "$work/second.medusa" -- $launcher 2 "${ranked[@]}"
assert_exit second 0
for rank in 0 1; do
	restore_bundle mixed$rank "$bundle" 2 LAUNCHER_AT_$rank=MEDUSA_ARTIFACT="$work/second.medusa"
	assert_live_all mixed$rank 2 " restores from another bundle than the others: give all ranks the same one"
done
cp -r "$bundle" "$work/copy.medusa"
restore_bundle copies "$bundle" 2 LAUNCHER_AT_1=MEDUSA_ARTIFACT="$work/copy.medusa"
assert_restored_all copies 2

section "signed"
cp -r "$bundle" "$work/signed.medusa"
medusa-sign keygen -o "$work/key" >/dev/null
for rank in 0 1; do
	run sign medusa-sign sign --key "$work/key" "$work/signed.medusa/rank-$rank.medusa"
	assert_exit sign 0
done
restore_bundle signed "$work/signed.medusa" 2 MEDUSA_TRUSTED_KEYS="$work/key.pub"
assert_restored_all signed 2
restore_bundle unsigned "$bundle" 2 MEDUSA_TRUSTED_KEYS="$work/key.pub"
assert_live_all unsigned 2 "not signed"

section "commands that want one artifact"
for tool in "medusa-inspect" "medusa-inspect --json" "medusa-inspect --diff $bundle/rank-0.medusa" "medusa-sign check" "medusa-sign sign --key $work/key"; do
	# shellcheck disable=SC2086 # words
	run wants $tool "$bundle"
	assert_at_least "exit code of $tool" 1 "$code"
	assert_contains "$work/wants.err" "is a bundle: name the artifact of one rank, $bundle/rank-0.medusa"
done

# ---- files that do not fit ---------------------------------------------------------------------------------------------
section "another number of ranks"
restore_bundle more "$bundle" 3
assert_live_all more 3 "is a bundle of 2 ranks, and this job has 3: capture it with as many"
restore_bundle fewer "$bundle" 1
assert_live_all fewer 1 "is a bundle of 2 ranks, and this job has 1"

section "a rank's artifact is missing"
copy_bundle lacks
rm "$work/lacks.medusa/rank-1.medusa"
restore_bundle lacks "$work/lacks.medusa" 2
assert_live_all lacks 2 "live: rank 1 cannot restore it: "
assert_contains "$work/lacks.err" "rank-1.medusa"

section "a rank's artifact is damaged"
copy_bundle damaged
for at in 100 2000; do
	cp "$bundle/rank-1.medusa" "$work/damaged.medusa/"
	printf 'xxxxxxxx' | dd of="$work/damaged.medusa/rank-1.medusa" bs=1 seek=$at conv=notrunc status=none
	restore_bundle damaged$at "$work/damaged.medusa" 2
	assert_live_all damaged$at 2 "live: rank 1 cannot restore it: "
	run damagedv medusa-verify "$work/damaged.medusa" -- $launcher 2 "${ranked[@]}"
	assert_exit damagedv 3
done

section "every rank must be given its graphs, or the job ends (--require)"
required() { # name, bundle, ranks, requirement
	run "$1" env SUBJECT_TOGETHER="$work/$1=$3" medusa-restore "$2" --require "$4" --report "$work/$1.json" -- $launcher "$3" "${ranked[@]}"
}
report_of() { # name, rank, what of it
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/$1.json.rank-$2" "$3"
}
required met "$bundle" 2 all
assert_restored_all met 2
for rank in 0 1; do
	assert_equal "graphs given to rank $rank" "4 0 True" "$(report_of met $rank graphs_given) $(report_of met $rank graphs_refused) $(report_of met $rank whole)"
done
for requirement in all any; do
	required unmet$requirement "$work/damaged.medusa" 2 $requirement
	assert_exit unmet$requirement 1
	assert_contains "$work/unmet$requirement.err" "medusa-restore: --require $requirement: "
	assert_contains "$work/unmet$requirement.err" "rank 1 cannot restore it"
done
required others "$bundle" 3 any
assert_exit others 1
assert_contains "$work/others.err" "is a bundle of 2 ranks, and this job has 3"

section "two ranks' artifacts are exchanged"
copy_bundle exchanged
mv "$work/exchanged.medusa/rank-0.medusa" "$work/exchanged.medusa/x"
mv "$work/exchanged.medusa/rank-1.medusa" "$work/exchanged.medusa/rank-0.medusa"
mv "$work/exchanged.medusa/x" "$work/exchanged.medusa/rank-1.medusa"
restore_bundle exchanged "$work/exchanged.medusa" 2
assert_live_all exchanged 2 "rank-1.medusa: not the artifact that the bundle was made with for rank 1"
run exchangedv medusa-verify "$work/exchanged.medusa" -- $launcher 2 "${ranked[@]}"
assert_exit exchangedv 3
assert_contains "$work/exchangedv.err" "rank-0.medusa: not the artifact that the bundle was made with for rank 0"
section "a rank's artifact is another one's copy"
copy_bundle copied
cp "$bundle/rank-0.medusa" "$work/copied.medusa/rank-1.medusa"
restore_bundle copied "$work/copied.medusa" 2
assert_live_all copied 2 "live: rank 1 cannot restore it: "

section "a manifest that cannot be used"
while IFS='|' read -r how why; do
	copy_bundle manifest
	(cd "$work/manifest.medusa" && eval "$how")
	restore_bundle manifest "$work/manifest.medusa" 2
	assert_live_all manifest 2 "$why"
	run manifestv medusa-verify "$work/manifest.medusa" -- $launcher 2 "${ranked[@]}"
	assert_exit manifestv 3
	assert_contains "$work/manifestv.err" "$why"
done <<'END'
: >manifest|manifest: line 1 is not "medusa-bundle 1"
sed -i '1s/1/2/' manifest|manifest: line 1: "medusa-bundle 2", and this version of Medusa reads "medusa-bundle 1"
sed -i '2s/2/1/' manifest|manifest: line 2 is no number of ranks from 2 to 256
sed -i '2s/2/257/' manifest|manifest: line 2 is no number of ranks from 2 to 256
sed -i '2s/2/ 2/' manifest|manifest: line 2 is no number of ranks
sed -i '2s/2/3/' manifest|manifest: line 5 is not "rank 2" and a hash
sed -i '4d' manifest|manifest: line 4 is not "rank 1" and a hash
sed -i '3{h;d};4G' manifest|manifest: line 3 is not "rank 0" and a hash
sed -i '3s/..$//' manifest|manifest: line 3 is not "rank 0" and a hash
head -c -1 manifest >m; mv m manifest|manifest: line 4 is not "rank 1" and a hash
echo more >>manifest|manifest: something follows the last of 2 ranks
printf '\0' >>manifest|manifest: not a text
truncate -s 100000 manifest|manifest:
END
section "no manifest"
copy_bundle bare
rm "$work/bare.medusa/manifest"
restore_bundle bare "$work/bare.medusa" 2
assert_exit bare 3
assert_contains "$work/bare.err" "bare.medusa: not a file, and no bundle: it has no file manifest"
run barev medusa-verify "$work/bare.medusa" -- $launcher 2 "${ranked[@]}"
assert_exit barev 3
run bare2 env "$(preload restore)" MEDUSA_ARTIFACT="$work/bare.medusa" MEDUSA_RANKS_FOLDER="$work/meet" $launcher 2 "${ranked[@]}"
assert_live_all bare2 2 "bare.medusa: not a regular file but a folder, and no bundle: it has no file manifest"

section "ranks that do not say a number"
for rank in 0 1; do eval "export LAUNCHER_AT_$rank=RANK=x"; done
restore_bundle unnamed "$bundle" 2
unset LAUNCHER_AT_0 LAUNCHER_AT_1
assert_live_all unnamed 2 "tp2.medusa is a bundle: RANK: \"x\" is no number from 0 to 1"

# ---- ranks that end ----------------------------------------------------------------------------------------------------
for rank in 0 1; do
	section "rank $rank is killed in mid-restore"
	restore_bundle dies$rank "$bundle" 2 LAUNCHER_LETS=1 LAUNCHER_AT_$rank=SUBJECT_AT=3=die
	assert_exit dies$rank 137
	assert_equal "what the other rank computes" 4 "$(comm -12 <(sort "$work/live2.out") <(sort "$work/dies$rank.out") | sort | uniq | grep -c "^local")" 2>/dev/null
	assert_equal "lines that are wrong" "" "$(comm -13 <(sort "$work/live2.out") <(sort "$work/dies$rank.out"))"
	assert_contains "$work/dies$rank.err" "nothing more is restored: the ranks of this job do not restore together: "
done
section "a rank that has no memory left when it asks"
poor="LD_PRELOAD=$MEDUSA_BUILD/tests/faults/inject.so:$MEDUSA_BUILD/lib/libmedusa-restore.so INJECT_FROM=libmedusa-restore.so INJECT_PROGRAM=ranks_subject INJECT_MAIN=1"
restore_bundle poor "$bundle" 2 LAUNCHER_AT_1="$poor INJECT=memory:0"
assert_restored_all poor 2
calls=$(sed -n 's/^inject: \([0-9]*\) calls$/\1/p' "$work/poor.err")
assert_at_least "calls" 5 "$calls"
said=0
for ((turn = 0; turn < calls && !said; turn++)); do # one of the last calls
	at=$((calls - turn))
	restore_bundle poor$turn "$bundle" 2 LAUNCHER_AT_1="$poor INJECT=memory:$at" MEDUSA_RANKS_TIMEOUT=10
	assert_exit poor$turn 0
	assert_right poor$turn 2
	assert_equal "ranks that have a graph which the other one has not" "" "$(grep -o '^local.* restored$' "$work/poor$turn.err" | sort | uniq -u)"
	grep -qF "rank 1 cannot restore it: out of memory for the names of graphs that ranks vote on" "$work/poor$turn.err" && said=1
done
assert_at_least "runs in which the rank has no memory for a graph's name" 1 $said

section "a rank is not started"
restore_bundle skipped "$bundle" 2 LAUNCHER_SKIP=1 MEDUSA_RANKS_TIMEOUT=2 SUBJECT_TOGETHER=
assert_exit skipped 0
assert_equal "lines that are wrong" "" "$(comm -13 <(sort "$work/live2.out") <(sort "$work/skipped.out"))"
assert_contains "$work/skipped.err" "rank 1 has not come in 2 s"
section "the launcher fails"
run fails medusa-restore "$bundle" -- sh -c 'exit 7'
assert_exit fails 7
run nothing medusa-restore "$bundle" -- "$work/no-such-command"
assert_exit nothing 4
section "the command is told to end"
medusa-restore "$bundle" -- sh -c 'trap "exit 9" TERM; : >'"$work/started"'; while :; do sleep 0.05; done' &
restoring=$!
for _ in $(seq 200); do [ -e "$work/started" ] && break; sleep 0.05; done
kill -TERM $restoring
wait $restoring
assert_equal "exit code" 9 $?

before=$(state_of "$bundle")
assert_unchanged() { # name of a run that makes nothing
	assert_equal "the bundle after '$1'" "$before" "$(state_of "$bundle")"
	assert_equal "what '$1' leaves beside it" "" "$(ls "$work" | grep 'tp2.medusa.\(tmp\|lock\)')"
}

for rank in 0 1; do
	section "rank $rank is killed in mid-capture"
	capture_bundle tp2 2 LAUNCHER_AT_$rank=SUBJECT_AT=3=die
	assert_exit tp2 4
	assert_contains "$work/tp2.err" "the command ended with 137"
	assert_unchanged tp2
	section "rank $rank is killed in mid-capture, and the launcher does not see it"
	run tp2 medusa-capture --vary '*' -o "$bundle" -- sh -c "LAUNCHER_AT_$rank=SUBJECT_AT=3=die LAUNCHER_LETS=1 $launcher 2 \"\$@\"; true" sh "${ranked[@]}"
	assert_exit tp2 4
	assert_contains "$work/tp2.err" "medusa-capture: rank $rank: recording was cut short"
	assert_unchanged tp2
	rm -f "$work"/tp2.rank-*.mtrace*
done
section "a rank is not started in a capture"
capture_bundle tp2 2 LAUNCHER_SKIP=1
assert_exit tp2 5
assert_contains "$work/tp2.err" "medusa-capture: rank 1: no CUDA driver call was intercepted; all 2 ranks of a bundle run on this host"
assert_unchanged tp2
section "another number of ranks in the second capture"
run tp2 medusa-capture --vary '*' -o "$bundle" -- sh -c "n=2; mkdir $work/second 2>/dev/null || n=3; $launcher \$n \"\$@\"" sh "${ranked[@]}"
assert_exit tp2 3
assert_contains "$work/tp2.err" "capture 2 has 3 ranks, and the first one had 2"
assert_unchanged tp2
rm -f "$work"/tp2.rank-*.mtrace*
section "ranks that do not agree about their number"
capture_bundle tp2 2 LAUNCHER_AT_1=WORLD_SIZE=3
assert_exit tp2 3
assert_contains "$work/tp2.err" "one rank says that there are 2, and another one that there are 3"
assert_unchanged tp2
section "the launcher is told to end in a capture"
rm "$work/tp2.err" # else what an earlier run said is read before this one begins
SUBJECT_AT=3=late medusa-capture --vary '*' -o "$bundle" -- $launcher 2 "${ranked[@]}" >"$work/tp2.out" 2>"$work/tp2.err" &
capturing=$!
for _ in $(seq 200); do [ "$(grep -c '^local/2' "$work/tp2.err" 2>/dev/null)" = 2 ] && break; sleep 0.05; done
kill -TERM $capturing
wait $capturing
code=$?
assert_exit tp2 143
assert_unchanged tp2

section "all graphs of one rank are refused"
capture_bundle refused 2 LAUNCHER_AT_1=SUBJECT_REFUSES=1
assert_exit refused 1
assert_contains "$work/refused.err" "medusa-capture: rank 1: refused: (local, 1): refused by the engine: the test wants it"
assert_contains "$work/refused.err" "rank 1 has no graph, so no rank restores any"
restore_bundle refusedr "$work/refused.medusa" 2
assert_live_all refusedr 2 "live: rank 1 cannot restore it: "
run refusedv medusa-verify "$work/refused.medusa" -- $launcher 2 "${ranked[@]}"
assert_exit refusedv 5
section "... and an older bundle has some"
capture_bundle tp2 2 LAUNCHER_AT_1=SUBJECT_REFUSES=1
assert_exit tp2 1
assert_contains "$work/tp2.err" "tp2.medusa: the existing bundle holds graphs and is not replaced"
assert_unchanged tp2

section "a graph that one rank alone has"
capture_bundle apart 2 LAUNCHER_AT_1=SUBJECT_AT=2=skip
assert_exit apart 0
restore_bundle apartr "$work/apart.medusa" 2
assert_right apartr 2
assert_equal "graphs restored" 6 "$(grep -c '^local.* restored$' "$work/apartr.err")"
assert_contains "$work/apartr.err" "local/2 live: rank 1 cannot restore it: the artifact has no graph local/2"

# ---- what is there already ---------------------------------------------------------------------------------------------
section "an older bundle is replaced"
old=$(stat -c %i "$bundle")
capture_bundle tp2 3
assert_exit tp2 0
checks=$((checks + 1))
[ "$(stat -c %i "$bundle")" != "$old" ] || fail "another folder" "the same"
assert_equal "files" "manifest rank-0.medusa rank-1.medusa rank-2.medusa" "$(ls "$bundle" | tr '\n' ' ' | sed 's/ $//')"
assert_equal "what is left beside it" "" "$(ls "$work" | grep 'tp2.medusa.')"
restore_bundle three "$bundle" 3
assert_restored_all three 3
capture_bundle tp2 2
assert_exit tp2 0
before=$(state_of "$bundle")
section "a file is there"
echo mine >"$work/file.medusa"
capture_bundle file 2
assert_exit file 3
assert_contains "$work/file.err" "file.medusa: is a file, and a bundle of 2 ranks is a folder: remove the file, or name another output"
assert_equal "the file" mine "$(cat "$work/file.medusa")"
section "a folder is there"
mkdir "$work/folder.medusa"
echo mine >"$work/folder.medusa/file"
capture_bundle folder 2
assert_exit folder 3
assert_contains "$work/folder.err" "folder.medusa: is a folder, and no bundle; name a file"
assert_equal "the folder" file "$(ls "$work/folder.medusa")"
section "a bundle is there, and a single artifact to write"
run tp2 medusa-capture -o "$bundle" -- "${subject[@]}" 0 -
assert_exit tp2 3
assert_contains "$work/tp2.err" "tp2.medusa: is a bundle, and no process of this command has said that it is one of several ranks"
assert_unchanged tp2
section "two captures into one bundle"
run_beside busy env SUBJECT_AT=2=late medusa-capture --vary '*' -o "$bundle" -- $launcher 2 "${ranked[@]}"
for _ in $(seq 200); do ls "$bundle".tmp-* >/dev/null 2>&1 && break; sleep 0.05; done # it has the lock by then
run second medusa-capture --vary '*' -o "$bundle" -- $launcher 2 "${ranked[@]}"
assert_exit second 4
assert_contains "$work/second.err" "is working on it"
await_beside busy
assert_exit busy 0
assert_unchanged busy

section "the command is killed before some use of a file"
inject=(env "LD_PRELOAD=$MEDUSA_BUILD/tests/faults/inject.so" INJECT_FROM=medusa-capture INJECT_PROGRAM=medusa-capture)
run tp2 "${inject[@]}" INJECT=kill:0 medusa-capture --vary '*' -o "$bundle" -- $launcher 2 "${ranked[@]}"
calls=$(sed -n 's/[^0-9]*\([0-9][0-9]*\).*/\1/p' <(grep -i inject "$work/tp2.err" | tail -n 1))
assert_at_least "uses of files" 50 "$calls"
assert_unchanged tp2
for at in $((calls / 3)) $((calls / 2)) $((calls - 60)) $((calls - 40)) $(seq $((calls - 28)) 2 "$calls"); do
	("${inject[@]}" INJECT=kill:"$at" medusa-capture --vary '*' -o "$bundle" -- $launcher 2 "${ranked[@]}" >"$work/kill.out" 2>"$work/kill.err"; exit $?) 2>/dev/null
	assert_equal "the bundle when the command is killed before use $at" "$before" "$(state_of "$bundle")"
done
section "what a killed command has left"
run tp2 medusa-capture --vary '*' -o "$bundle" -- $launcher 2 "${ranked[@]}"
assert_exit tp2 0
assert_unchanged tp2

section "a file cannot be used"
for at in $(seq $((calls - 60)) 4 "$calls"); do
	run failing "${inject[@]}" INJECT=file:"$at" medusa-capture --vary '*' -o "$bundle" -- $launcher 2 "${ranked[@]}"
	assert_equal "the bundle when use $at fails" "$before" "$(state_of "$bundle")"
	rm -rf "$bundle".tmp-* "$bundle.lock" "$work"/tp2.rank-*.mtrace*
done

small_disk=$work/disk
mkdir "$small_disk"
if mount -t tmpfs -o size=96k none "$small_disk" 2>/dev/null; then
	mounted=$small_disk
	for kib in 0 8 16 24 32 40 48 56 64 72; do
		section "$kib KiB taken of a disk of 96 KiB"
		rm -rf "${small_disk:?}"/*
		head -c $((kib << 10)) /dev/zero >"$small_disk/ballast"
		run disk medusa-capture --vary '*' -o "$small_disk/a.medusa" -- $launcher 2 "${ranked[@]}"
		checks=$((checks + 1))
		case $code in
		0) assert_equal "the bundle" "$(state_of "$bundle")" "$(state_of "$small_disk/a.medusa")" ;;
		3 | 4 | 5) [ ! -e "$small_disk/a.medusa" ] && grep -q 'No space left\|cut short\|bytes are free' "$work/disk.err" ||
			fail "no bundle, and the reason" "$(ls "$small_disk"; excerpt "$work/disk.err")" ;;
		*) fail "exit code 0, 3, 4 or 5" "$code; $(excerpt "$work/disk.err")" ;;
		esac
	done
else
	echo "(no tmpfs can be mounted here: a disk that fills up is not tried)"
fi
assert_equal "what is left where commands work" "" "$(ls "$TMPDIR")"
finish
