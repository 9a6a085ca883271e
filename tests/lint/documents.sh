#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What documents point to is there: links of Markdown, files of the tree in backquotes, and manual pages by name; and
# docs/README.md, the map, names every document and every manual page.
set -u
cd "$(dirname "$0")/../.."
failed=0

say() {
	echo "$*"
	failed=1
}

folders=$(git ls-files | grep / | cut -d/ -f1 | sort -u | paste -sd '|')
while read -r document; do
	text=$(sed '/^```/,/^```/d' "$document")
	for link in $(grep -oE '\]\([^)# ]+' <<<"$text" | sed 's/^](//' | grep -v ://); do
		[ -e "$(dirname "$document")/$link" ] || say "$document: the link to $link leads nowhere"
	done
	# Placeholders in capitals, patterns, and what a build makes are no files of the tree.
	for file in $(grep -oE "\`($folders)/[A-Za-z0-9_./-]+\`" <<<"$text" | tr -d '`' | grep -vE '[A-Z]{3}|/test_suite|^build/'); do
		[ -e "$file" ] || say "$document: $file is not in the tree"
	done
	for page in $(grep -oE '\bmedusa[a-z_-]*\([0-9]\)' <<<"$text" | sort -u); do
		name=${page%(*}
		section=${page#*(}
		[ -e "docs/man/$name.${section%)}" ] || say "$document: there is no manual page $page"
	done
done < <(git ls-files '*.md' ':!bench/results')
for page in docs/man/*.[1-9]; do
	[ "$(head -c 4 "$page")" = ".so " ] && continue
	name=${page##*/}
	named=$(sed -n '/^\.SH SEE ALSO/,$p' "$page" | sed -nE 's/^\.BR ([a-z_-]+) \(([0-9])\).*/\1.\2/p')
	for other in $named; do
		[ -e "docs/man/$other" ] || say "$page: SEE ALSO names $other, which is no page of ours"
	done
	grep -qF "\`${name%.*}(${name##*.})\`" docs/README.md || say "docs/README.md does not name ${name%.*}(${name##*.})"
done
for document in $(git ls-files '*.md' | grep -E '^(docs/)?[A-Za-z-]+\.md$'); do
	[ "$document" = docs/README.md ] && continue
	case $document in
	docs/*) grep -qF "](${document#docs/})" docs/README.md ;;
	*) grep -qF "](../$document)" docs/README.md ;;
	esac || say "docs/README.md does not name $document"
done
exit $failed
