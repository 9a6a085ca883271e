#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No blank line stands between the declarations that begin a block and what follows them; declarations.sh FILE... looks at these alone.
set -u
cd "$(dirname "$0")/../.."
if [ $# = 0 ]; then
	mapfile -t files < <(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
	set -- "${files[@]}"
fi

awk '
function ends(line) { # adds the brackets of a line to those that are open, and says whether a declaration ends here
	open += gsub(/[({[]/, "&", line) - gsub(/[)}\]]/, "&", line)
	return open <= 0 && line ~ /;[ \t]*$/
}
FNR == 1 {
	comment = leading = declarations = inside = skipped = 0
}
{
	line = $0
	if (comment && !sub(/^([^*]|\*+[^*\/])*\*+\//, "", line))
		next
	gsub(/\/\*([^*]|\*+[^*\/])*\*+\/|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047/, "", line)
	comment = sub(/\/\*.*$/, "", line)
	sub(/[ \t]+$/, "", line)
}
line ~ /^[ \t]*#/ {
	next
}
inside { # a declaration of several lines
	inside = !ends(line)
	next
}
skipped { # an initializer, or a type
	ends(line)
	skipped = open > 0
	next
}
leading && $0 == "" && declarations {
	print FILENAME ":" FNR ": a blank line after the declarations that begin a block: remove it"
	failed = 1
}
line == "" {
	next
}
leading && line ~ /^\t+(([A-Za-z_][A-Za-z0-9_]*(\(([^()]|\([^()]*\))*\))? \**)+([A-Za-z_]|\(\*)|(struct|union|enum) \{)/ &&
    line !~ /^\t+(return|goto|case|default|else|do|if|for|while|switch|asm|__asm__)( |$)/ {
	declarations = 1
	open = 0
	inside = !ends(line)
	next
}
{
	leading = line ~ /(^|\) |else |do |: )\{$/ || line ~ /^\t+\{$/
	if (line ~ /^[ \t]*(typedef|struct|union|enum) .*\{$/)
		leading = 0
	declarations = 0
	open = 0
	skipped = !leading && line ~ /\{$/ && !ends(line) && open > 0
}
END {
	exit failed
}' "$@"
