#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Secrets on an engine's command line reach no file, no log and no child; who may read what is written.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/assumptions_subject
secret=Zq7kunterbunt
words=(--api-key "$secret" --hf-token="$secret" "HF_TOKEN=$secret" "http://me:$secret@host/" --header "Authorization: Bearer $secret"
	"{\"password\": \"$secret\"}" --token-count 5 --max-tokens 7)
hidden=(--api-key REDACTED --hf-token=REDACTED HF_TOKEN=REDACTED http://REDACTED@host/ --header 'Authorization: REDACTED'
	'{"password": "REDACTED"}' --token-count 5 --max-tokens 7)

with_key() { # another secret in the same places
	local word
	for word in "${words[@]}"; do
		other+=("${word//$secret/$1}")
	done
}

assert_no_secret() { # where, files...
	local where=$1
	shift
	assert_equal "files with the secret: $where" "" "$(grep -arl "$secret" "$@")"
}

section "in traces, artifacts and logs"
export MEDUSA_LOG=debug MEDUSA_LOG_FILE=$work/medusa.log
run captured medusa-capture --keep-traces --vary "--secret=$secret" -o "$work/a.medusa" -- "$subject" --value 5 "${words[@]}"
assert_exit captured 0
for file in a.medusa a.1.mtrace a.2.mtrace; do
	run "$file.text" medusa-inspect --text "$work/$file"
	run "$file.json" medusa-inspect --json "$work/$file"
	run "$file.short" medusa-inspect "$work/$file"
	for form in text json short; do
		assert_exit "$file.$form" 0
	done
done
assert_contains "$work/a.medusa.short.out" "command  $subject --value 5 ${hidden[*]}"
assert_contains "$work/a.medusa.short.out" "may vary --secret=REDACTED"
for i in "${!hidden[@]}"; do
	assert_contains "$work/a.medusa.short.out" "argument $((i + 3)) ${hidden[i]}"
done
assert_no_secret "all" "$work"

section "another key" # is no other engine
other=() && with_key hunter2
run another medusa-restore "$work/a.medusa" -- "$subject" --value 5 "${other[@]}"
assert_contains "$work/another.err" "constant restored"
run other_value medusa-restore "$work/a.medusa" -- "$subject" --value 7 "${other[@]}"
assert_contains "$work/other_value.err" ' live fingerprint: argument 2 is "7", the artifact was captured with "5"'
other=() && with_key hunter2 && other[${#other[@]}-1]=8
run other_count medusa-restore "$work/a.medusa" -- "$subject" --value 5 "${other[@]}"
assert_contains "$work/other_count.err" ' live fingerprint: argument 14 is "8", the artifact was captured with "7"'
run no_key medusa-restore "$work/a.medusa" -- "$subject" --value 5 --hf-token="$secret" "${words[@]:3}"
assert_contains "$work/no_key.err" ' live fingerprint: argument 3 is "--hf-token=REDACTED", the artifact was captured with "--api-key"'
run verified medusa-verify "$work/a.medusa" --junit "$work/junit.xml" -- "$subject" --value 5 "${words[@]}"
assert_exit verified 0
run second medusa-capture -o "$work/b.medusa" --second "$subject --value 5 --api-key other$secret" -- "$subject" --value 5 --api-key "$secret"
assert_exit second 0
assert_no_secret "after restores, a verification and another capture" "$work"
unset MEDUSA_LOG MEDUSA_LOG_FILE

section "more arguments than are kept"
many=()
for i in $(seq 4200); do many+=("$i"); done
run many medusa-capture -o "$work/many.medusa" -- "$subject" --value 5 "${many[@]}" --api-key "$secret"
run many.restored medusa-restore "$work/many.medusa" -- "$subject" --value 5 "${many[@]}" --api-key hunter2
assert_contains "$work/many.restored.err" "constant restored"

section "what Python's workers are told"
run told env MEDUSA_TRACE="$work/told.mtrace" "$(preload capture)" python3 -c 'import os
print(os.environ["MEDUSA_ARGUMENTS"].split("\n"))' --api-key "$secret" --port 1
assert_contains "$work/told.out" "'--api-key', 'REDACTED', '--port', '1', ''"

section "modes of files"
mode() { assert_equal "mode of $1" "$2" "$(stat -c %a "$work/$1")"; }
umask 0
MEDUSA_TRACE=$work/mode.mtrace MEDUSA_LOG=debug MEDUSA_LOG_FILE=$work/mode.log run traced env "$(preload capture)" "$subject" --value 5
mode mode.mtrace 600
mode mode.log 600
run artifact medusa-capture --keep-traces -o "$work/mode.medusa" -- "$subject" --value 5
mode mode.medusa 666 # for whoever the umask lets read it
mode mode.1.mtrace 600
for found in 644 640 400 777; do # a file that is there
	rm -f "$work/found.mtrace" && touch "$work/found.mtrace.part" "$work/found.$found.log" && chmod $found "$work/found.mtrace.part" "$work/found.$found.log"
	MEDUSA_TRACE=$work/found.mtrace MEDUSA_LOG=debug MEDUSA_LOG_FILE=$work/found.$found.log run found.$found env "$(preload capture)" "$subject" --value 5
	[ $found = 400 ] && [ "$(id -u)" != 0 ] && rm -f "$work/found.mtrace.part" && continue
	mode found.mtrace "$([ $found = 400 ] && echo 400 || echo 600)"
	mode found.$found.log $found # its user has chosen that
done
umask 022

section "links"
echo kept >"$work/elsewhere" && chmod 644 "$work/elsewhere"
ln -s elsewhere "$work/link.mtrace.part" && ln -s elsewhere.log "$work/link.log"
MEDUSA_TRACE=$work/link.mtrace MEDUSA_LOG=debug MEDUSA_LOG_FILE=$work/link.log run linked env "$(preload capture)" "$subject" --value 5
assert_equal "what a link leads to, at the place of a trace" kept "$(cat "$work/elsewhere")"
assert_contains "$work/elsewhere.log" "nothing is recorded: " # the user has named the log
mode elsewhere.log 600
mode elsewhere 644
finish
