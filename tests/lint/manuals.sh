#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages as mandoc understands them, and no words that an alternating font glues together (.BR a b c). Every public
# function has a page or a link to one, with the prototype of its header; every setting that code reads is in medusa(7).
set -u
cd "$(dirname "$0")/../.."
command -v mandoc >/dev/null || {
	echo 'mandoc is not installed'
	exit 1
}
failed=0
is_link() { [ "$(head -c 4 "$1")" = ".so " ]; }

for page in docs/man/*.[1-9]; do
	is_link "$page" && continue
	# Long lines are our style; all else that mandoc finds is a fault.
	mandoc -T lint -W warning "$page" || failed=1
	glued=$(grep -nE '^\.(BR|RB|BI|IB|IR|RI) ' "$page" | sed -E 's/"[^"]*"/"/g; s/^([0-9]+:\.[A-Z]{2}) /\1\t/' |
		grep -E '	.*[A-Za-z0-9;:,.] [A-Za-z0-9]')
	[ -z "$glued" ] && continue
	echo "$page: words without a space between them:"
	echo "$glued"
	failed=1
done

say() {
	echo "$*"
	failed=1
}

for page in docs/man/*.[1-9]; do
	name=${page##*/}
	name=${name%.[1-9]}
	if is_link "$page"; then
		target=docs/man/$(sed -n 's/^\.so man3\///p' "$page")
		[ "$(wc -l <"$page")" = 1 ] && [ -f "$target" ] || say "$page: write one line, .so man3/PAGE.3, of a page that is there"
	else
		target=$page
	fi
	sed -n '/^\.SH NAME/{n;p;q}' "$target" | sed 's/ \\- .*//; s/\\-/-/g' | tr -d ' ' | tr , '\n' | grep -qx -- "$name" ||
		say "$page: the NAME section of $target does not name $name"
done

flat() { tr -s ' \t\n' ' ' | sed 's/\* /*/g'; }
for library in medusa:medusa.h,swap.h,share.h medusa-sched:scheduler.h,scheduler_cluster.h; do
	headers=include/medusa/${library#*:}
	headers=${headers//,/ include/medusa/}
	prototypes=$(for header in $headers; do ${CC:-gcc} -fpreprocessed -E -P -x c "$header"; done | grep -v '^#' | flat) # no comments, no directives
	while read -r function; do
		page=docs/man/$function.3
		[ -f "$page" ] || {
			say "$function has no manual page: write $page, or a link there to the page that describes it"
			continue
		}
		is_link "$page" && page=docs/man/$(sed 's/^\.so man3\///' "$page")
		prototype=$(grep -oE "[a-z][a-z_ ]*[ *]+$function\([^;]*\);" <<<"$prototypes" | head -n 1)
		[ -n "$prototype" ] || say "$function: no prototype in $headers"
		mandoc -T ascii -O width=200 "$page" | sed "s/.\x08//g" | flat | grep -qF -- "$prototype" ||
			say "$page: its SYNOPSIS does not say what $headers says: $prototype"
	done < <(sed 's/@.*//' "tests/lint/exports-lib${library%:*}.txt")
done

# What stands in quotes and looks like a setting; tests and benchmarks have settings of their own.
settings() { grep -oE '\b(MEDUSA|HOSTCUDA)_[A-Z][A-Z0-9_]*'; }
read_here=$(git grep -hoE '"(MEDUSA|HOSTCUDA)_[A-Z0-9_]+' -- '*.c' '*.h' '*.py' ':!tests' ':!bench' ':!models/*/tests/*' | settings | sort -u)
described=$(sed -n '/^\.SH ENVIRONMENT/,/^\.SH SECURITY/p' docs/man/medusa.7 | settings | sort -u)
for setting in $(comm -23 <(echo "$read_here") <(echo "$described")); do
	say "$setting is read and not in docs/man/medusa.7: describe it there, for users or among those that the commands set"
done
for setting in $(comm -13 <(echo "$read_here") <(echo "$described")); do
	say "docs/man/medusa.7 describes $setting, which nothing reads: remove it there"
done
exit $failed
