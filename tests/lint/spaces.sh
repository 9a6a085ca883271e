#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No space ends a line, no line ends as in DOS, and the last line ends (.editorconfig); spaces.sh FILE... looks at these alone.
set -u
cd "$(dirname "$0")/../.."
failed=0
own=(':!bench/results' ':!tests/fuzz/corpus') # recorded output, and inputs of tests

complain() { # what is wrong, the places
	[ -z "$2" ] && return
	echo "$1:"
	echo "$2"
	failed=1
}

complain 'spaces, tabs or a carriage return at the end of a line' "$(git grep -nIE $'[ \t\r]+$' -- "${@:-.}" "${own[@]}")"
complain 'the last line does not end' "$(git grep -lIz '' -- "${@:-.}" "${own[@]}" | xargs -0r grep -LzP '\n\z' --)"
exit $failed
