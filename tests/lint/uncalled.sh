#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A function or macro that a header offers is used by somebody else than the file that defines it: if nobody uses it, it
# goes; if its own file alone does, it is static there. Public headers are for others (include/medusa).
set -u
cd "$(dirname "$0")/../.."

git ls-files '*.c' '*.h' '*.S' '*.cu' '*.cuh' '*.def' '*.map' '*.py' Makefile | xargs awk '
FNR == 1 {
	header = FILENAME ~ /\.h$/ && FILENAME !~ /^include\//
	comment = 0
}
# Comments and strings name things that they do not use.
{
	line = $0
	gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
	gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, " ", line)
	if (comment && sub(/^.*\*\//, "", line))
		comment = 0
	else if (comment)
		line = ""
	else if (sub(/\/\*.*$/, "", line))
		comment = 1
	if (FILENAME !~ /\.[chS]$/ && FILENAME !~ /\.cuh?$/)
		line = $0
}
# A prototype, an inline function or a macro of a header: at the beginning of a line.
header && line ~ /^[A-Za-z_][A-Za-z0-9_ *]*[ *][a-z][a-z0-9_]*\(/ && line !~ /^(return|typedef|else|struct [a-z_]+ \{)/ {
	name = line
	sub(/\(.*$/, "", name)
	sub(/^.*[ *]/, "", name)
	declared[name] = FILENAME ":" FNR
	inline[name] = line ~ /^(static|[A-Z_]+_(INLINE|FUNCTION)) /
}
header && line ~ /^#define [A-Za-z0-9_]+/ && line !~ /_H$/ {
	name = line
	sub(/^#define /, "", name)
	sub(/[^A-Za-z0-9_].*$/, "", name)
	declared[name] = FILENAME ":" FNR
	inline[name] = 1
}
# Names that the preprocessor puts together.
{
	rest = line
	while (match(rest, /[A-Za-z0-9_]+[ \t]*##|##[ \t]*[A-Za-z0-9_]+/)) {
		part = substr(rest, RSTART, RLENGTH)
		rest = substr(rest, RSTART + RLENGTH - (part ~ /##$/ ? 2 : 0))
		start = part ~ /##$/
		gsub(/[ \t#]/, "", part)
		if (start)
			starts[part] = 1
		else
			ends[part] = 1
	}
}
{
	count = split(line, words, /[^A-Za-z0-9_]+/)
	for (i = 1; i <= count; i++) {
		uses[words[i]]++
		if (seen[words[i]] != FILENAME)
			files[words[i]]++
		seen[words[i]] = FILENAME
		if (header)
			offered[words[i]]++
	}
}
END {
	for (name in declared) {
		made = 0
		for (part in starts)
			made += length(part) > 4 && index(name, part) == 1
		for (part in ends)
			made += length(part) > 4 && name ~ (part "$")
		if (made || (!inline[name] && offered[name] > 1)) # by a macro or an inline function of the header
			continue
		if (inline[name] ? uses[name] < 2 : files[name] < 3)
			print declared[name] ": nobody uses " name (inline[name] ? "" : " but its own file: it is static there, or it goes")
	}
}' | sort | {
	if IFS= read -r first; then
		printf '%s\n' "$first"
		cat
		exit 1
	fi
}
