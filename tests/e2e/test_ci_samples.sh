#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The samples of docs/ci.md, and the script of docs/vllm.md for containers, do what the pages say, word by word, on hostcuda: each command and each code.
. "$(dirname "$0")/lib.sh"
unset MEDUSA_TRUSTED_KEYS PREVIOUS

sample() { # name, page: the fenced text behind that mark
	awk -v mark="<!-- sample: $1 -->" '$0 == mark { found = 1; next } found && /^```/ { if (++fences == 2) exit; next } found && fences == 1' "docs/${2:-ci}.md"
}

sample shell >"$work/sample.sh"
sample workflow >"$work/sample.yaml"
assert_at_least "commands of the shell sample" 7 "$(grep -c '^[^#]*medusa-[a-z]* ' "$work/sample.sh")"
root=$PWD
pipeline() { # name of the run: in a folder of its own, where the sample leaves its files
	mkdir -p "$work/$1"
	run "$1" env --chdir="$work/$1" ENGINE="$ENGINE" KEY="$work/build.key" TRUSTED="$work/build.key.pub" sh "$work/sample.sh"
}
ENGINE="$root/${engine_binary#"$root/"}"
[ -x "$ENGINE" ] || ENGINE=$engine_binary
ENGINE+=" --recipe $root/models/recipes/tiny.yaml --batches 1,2,4 --max-kv-bytes 1000000 --tokens 6 --quiet"
run keys medusa-sign keygen -o "$work/build.key"

section "the shell sample"
pipeline first
assert_exit first 0
for file in model.medusa medusa.xml model.json; do assert_file "$work/first/$file"; done
assert_no_file "$work/first/changes.txt"
assert_count "$work/first/medusa.xml" "<testcase " $graphs
assert_contains "$work/first/medusa.xml" 'failures="0"'
run json python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["graphs"]))' "$work/first/model.json"
assert_equal "graphs in the JSON" $graphs "$(cat "$work/json.out")"
run trusted medusa-sign check "$work/first/model.medusa" --trusted "$work/build.key.pub"
assert_exit trusted 0

section "the next release"
export PREVIOUS=$work/first/model.medusa
pipeline equal
assert_exit equal 0
assert_contains "$work/equal/changes.txt" equal
same_engine=$ENGINE
ENGINE+=" --kv-blocks 64"
pipeline different
assert_exit different 0
assert_contains "$work/different/changes.txt" "~ kv: bytes: "
ENGINE=$same_engine
PREVIOUS=$work/nowhere pipeline unreadable
assert_exit unreadable 1
assert_contains "$work/unreadable.err" "$work/nowhere"
unset PREVIOUS

section "pipelines that must end early"
ENGINE=false pipeline broken_engine
assert_exit broken_engine 4
assert_no_file "$work/broken_engine/model.medusa"
ENGINE="$same_engine --no-graphs" pipeline no_graphs
assert_exit no_graphs 5
run other medusa-sign keygen -o "$work/other.key"
run strange env --chdir="$work/first" ENGINE="$ENGINE" KEY="$work/other.key" TRUSTED="$work/build.key.pub" sh "$work/sample.sh"
assert_exit strange 1
assert_contains "$work/strange.err" "which is not in $work/build.key.pub"

section "the workflow's commands"
python3 - "$work/sample.yaml" >"$work/steps.sh" <<'END'
import re, sys
lines = open(sys.argv[1]).read().splitlines()
at = 0
while at < len(lines):
    step = re.match(r"( *)(?:- )?run: (.*)", lines[at])
    at += 1
    if step and step[2] != "|":
        print(step[2])
    elif step:
        while at < len(lines) and lines[at].startswith(step[1] + "  "):
            print(lines[at].strip())
            at += 1
END
assert_equal "commands of the workflow" 6 "$(wc -l <"$work/steps.sh")"
mkdir "$work/workflow"
cp "$work/build.key.pub" "$work/workflow/trusted.keys"
run steps env --chdir="$work/workflow" ENGINE="$ENGINE" MEDUSA_KEY="$(cat "$work/build.key")" bash -eo pipefail "$work/steps.sh"
assert_exit steps 0
assert_file "$work/workflow/model.medusa"
assert_file "$work/workflow/medusa.xml"
assert_no_file "$work/workflow/build.key"

section "the table of codes"
artifact=$work/first/model.medusa
head -c 500 "$artifact" >"$work/damaged.medusa"
expect() { # exit code, command...
	local expected=$1
	shift
	section "exit code $expected: $*"
	run expect "$@"
	assert_exit expect "$expected"
}
expect 3 medusa-verify "$work/damaged.medusa" -- $ENGINE
expect 3 medusa-sign check "$work/damaged.medusa"
expect 3 medusa-inspect "$work/damaged.medusa"
expect 3 medusa-inspect --diff "$artifact" "$work/damaged.medusa"
expect 1 medusa-verify "$artifact" -- $ENGINE --batches 1,2
expect 4 medusa-verify "$artifact" -- false
expect 2 medusa-sign sign "$artifact"
expect 7 medusa-restore "$work/damaged.medusa" -- sh -c 'exit 7'
expect 3 medusa-restore "$work/nowhere" -- true

section "the script of containers"
sample start vllm >"$work/start.sh"
assert_at_least "lines of the script" 10 "$(wc -l <"$work/start.sh")"
container() { # name, artifact
	run "$1" env ARTIFACT="$2" sh "$work/start.sh" $ENGINE --report "$work/$1.json"
}
restored() { # name
	assert_exit "$1" 0
	assert_equal "graphs that '$1' restores" $graphs "$(number "$1" graphs_restored)"
}
run_beside second env ARTIFACT="$work/volume.medusa" sh "$work/start.sh" $ENGINE --report "$work/second.json"
container first_container "$work/volume.medusa"
await_beside second
for name in first_container second; do restored $name; done
assert_equal "captures of two containers that start at once" 1 "$(cat "$work/first_container.err" "$work/second.err" | grep -c 'capture 1 of')"
assert_lacks "$work/start.sh" 'ARTIFACT.lock' # which is medusa-capture's own lock, and where flock(2) is fcntl(2)'s (NFS), one keeps the other out
rm "$work/volume.medusa.starting"
mkdir "$work/volume.medusa.starting" # as in a volume that is read-only, where no lock can be made
container read_only "$work/volume.medusa"
restored read_only
container no_place "$work/nowhere/volume.medusa"
assert_exit no_place 0
assert_contains "$work/no_place.err" "start: nothing is captured, because $work/nowhere/volume.medusa.starting cannot be locked"
ENGINE="$same_engine --no-graphs" container no_capture "$work/other.medusa"
assert_exit no_capture 0
assert_contains "$work/no_capture.err" "start: medusa-capture ended with 5"
finish
