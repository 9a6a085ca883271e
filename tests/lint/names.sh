#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Names in documents and comments are those of the tree: files, functions and types that begin with md_, in which file a
# document says that a function is, commands, settings; and each test subject's comments list its settings.
set -u
cd "$(dirname "$0")/../.."
failed=0

say() {
	echo "$*"
	failed=1
}

documents=$(git ls-files '*.md' ':!bench/results' ':!CHANGELOG.md')
tree=$(git ls-files)
suffixes='\.(c|h|cu|S|sh|py|def|map|md|supp|skip)'
# Headers of CUDA, examples of a user's files, and placeholders.
foreign='^cuda\.h$|[A-Z]{3,}|^tests/test_suite\.c$'

declare -A known=()
is_file() { # the end of a path
	[ -n "${known[$1]:-}" ] || { grep -qE "(^|/)${1//./\\.}$" <<<"$tree" && known[$1]=yes || known[$1]=no; }
	[ "${known[$1]}" = yes ]
}
declare -A called=() # all that begins with md_ in the code
while read -r name; do called[$name]=1; done < <(git grep -hoE '\bmd_[a-z0-9_]+\b' -- '*.c' '*.h' | sort -u)

prose() { sed '/^```/,/^```/d' "$1"; }

for document in $documents; do
	for file in $(prose "$document" | grep -oE "\`[A-Za-z0-9_./-]+$suffixes\`" | tr -d '`' | grep -vE "$foreign" | sort -u); do
		is_file "${file#./}" || say "$document: $file is no file of the tree"
	done
	for name in $(prose "$document" | grep -oE '`md_[a-z0-9_]+`' | tr -d '`' | sort -u); do
		[ -n "${called[$name]:-}" ] || say "$document: nothing in the code is called $name"
	done
	# "`function` in `file.c`" and "`function` (`file.c`)"
	while read -r name file; do
		[ -n "$file" ] || continue
		git grep -qwE "$name" -- "*${file#./}" || say "$document: $file has no $name"
	done < <(prose "$document" | tr '\n' ' ' | grep -oE "\`[a-z0-9_]+\`(\(\))? (in|\()[ ]?\`[a-z0-9_/]+\.(c|h|py|sh)\`" |
		sed -E 's/`([a-z0-9_]+)`.*`([^`]+)`/\1 \2/' | sort -u)
done

# Comments of C: "file.c", wherever it lies; test programs write files of their own.
while read -r place; do
	file=${place##*:}
	[[ $file =~ $foreign ]] || is_file "$file" || say "${place%:*}: the comment names $file, which is no file of the tree"
done < <(git grep -noE '(/\*|^ \*|//) .*' -- '*.c' '*.h' '*.cu' ':!tests/e2e' |
	sed -nE 's/^([^:]+:[0-9]+):(.*)/\1\t\2/p' | awk -F '\t' '{
		while (match($2, /[A-Za-z0-9_][A-Za-z0-9_.\/-]*\.(c|h|cu|sh|py|def|md|supp|skip)([^A-Za-z0-9_]|$)/)) {
			name = substr($2, RSTART, RLENGTH); sub(/[^A-Za-z0-9_]$/, "", name); print $1 ":" name
			$2 = substr($2, RSTART + RLENGTH - 1)
		}
	}')

# Every command stands in the picture of layers.
for command in tools/medusa-*.c; do
	[ -e "$command" ] || continue
	name=${command##*/medusa-}
	grep -qE "^tools/ .*-${name%.c}\b" ARCHITECTURE.md || say "ARCHITECTURE.md: the picture of layers lacks medusa-${name%.c} among tools/"
done

# A setting that a document or a page names is read somewhere, tests and benchmarks included. Titles of pages are in capitals, too.
pages=$(git ls-files 'docs/man/*.[1-9]')
code=$(git grep -hoE '\b(MEDUSA|HOSTCUDA|SUBJECT|HOST)_[A-Z][A-Z0-9_]*' -- ':!*.md' ':!docs' ':!bench/results' ':!tests/lint' | sort -u)
for setting in $(cat /dev/null $documents <(sed '/^\.TH /d' $pages /dev/null) | grep -oE '\b(MEDUSA|HOSTCUDA|SUBJECT|HOST)_[A-Z][A-Z0-9_]*[A-Z0-9]\b' | sort -u); do
	grep -qxF "$setting" <<<"$code" || say "$setting stands in $(grep -lw "$setting" $documents $pages /dev/null | head -n 1), and nothing in the tree knows it"
done

# A subject says in its comments which settings it takes; with or without what all of its settings begin with.
for subject in tests/subjects/*.c tests/subjects/*.h; do
	[ -e "$subject" ] || continue
	comments=$(grep -E '^(/\*| \*)' "$subject")
	for setting in $(grep -oE '(getenv|setting|number)\("[A-Z][A-Z0-9_]+"' "$subject" | cut -d '"' -f 2 | grep -v '^MEDUSA_' | sort -u); do
		grep -qwE "$setting|${setting#SUBJECT_}" <<<"$comments" || say "$subject: no comment says what $setting does"
	done
done
exit $failed
