#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs/abi.md in real processes: names and version nodes of the libraries, which library answers a program that was linked with,
# opens or asks by version for libmedusa.so, and programs that were linked with 0.1.0, which had no versions.
. "$(dirname "$0")/lib.sh"
lib=$MEDUSA_BUILD/lib
cuda=$(dirname "$(find -L "${CUDA_HOME:-/usr/local/cuda}/include" build/cuda -name cuda.h 2>/dev/null | head -1)")
export LD_LIBRARY_PATH=$lib:$LD_LIBRARY_PATH

dynamic() { readelf -d "$1" | sed -n "s/.*($2).*\\[\\(.*\\)\\]/\\1/p"; } # file, tag
nodes() { # library: the version nodes that it defines, without the one of its own name
	objdump -p "$1" | awk '/^Version definitions/ { found = 1; next } /^$/ { found = 0 } found && $1 > 1 { print $4 }'
}

for name in medusa medusa-sched; do
	section "names of lib$name"
	file=$lib/lib$name.so.$(cat VERSION)
	assert_equal "a file that is no link" "$file" "$(readlink -f "$lib/lib$name.so")"
	assert_equal "link by the soname" "lib$name.so.$(cat VERSION)" "$(readlink "$lib/$(dynamic "$file" SONAME)")"
	assert_equal "link for the linker" "$(dynamic "$file" SONAME)" "$(readlink "$lib/lib$name.so")"
done
section "version nodes"
node=$(nodes "$lib/libmedusa.so")
assert_equal "nodes of libmedusa.so" MEDUSA_0.2 "$node"
assert_equal "nodes of libmedusa-sched.so" MEDUSA_SCHED_0.2 "$(nodes "$lib/libmedusa-sched.so")"
versioned() { nm -D --defined-only "$lib/$1" | awk '$2 == "T" && $3 ~ /^medusa_/ { print $3 }'; }
versioned libmedusa.so >"$work/functions"
functions=$(wc -l <"$work/functions")
assert_equal "functions without a version" "" "$(grep -v @@MEDUSA "$work/functions")"
for kind in capture restore; do
	assert_equal "soname of what is found by file name" "libmedusa-$kind.so" "$(dynamic "$lib/libmedusa-$kind.so" SONAME)"
	assert_equal "functions of libmedusa-$kind.so that libmedusa.so has otherwise" "" "$(versioned libmedusa-$kind.so | diff "$work/functions" -)"
	assert_equal "hooks with a version" "" "$(nm -D --defined-only "$lib/libmedusa-$kind.so" | grep -E ' (cu|dlsym).*@')"
done

# ---- who answers ------------------------------------------------------------------------------------------------------
# What 0.1.0's libmedusa.so was to a linker: another soname, and no version. Linked with, and never run with.
mkdir "$work/before"
sed 's/@.*//; s/.*/void &(void) {}/' "$work/functions" | sed '1i /* nothing */' >"$work/before.c"
sed -n 's/^void \(.*\)(void) {}/void \1(void);/p' "$work/before.c" >"$work/before.h"
run stub gcc -shared -fPIC -include "$work/before.h" -fno-builtin -Wl,-soname,libmedusa.so -o "$work/before/libmedusa.so" "$work/before.c"
assert_exit stub 0
warnings=-Wl,--fatal-warnings
[ -z "${SAN:-}${TSAN:-}" ] || warnings= # the linker warns of a sanitizer's own library
link() { # program, source, folder of libmedusa.so, more arguments...
	local program=$1 source=$2 folder=$3
	shift 3
	run "link ${program##*/}" gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror ${TSAN:+-fsanitize=thread} $warnings -Iinclude -isystem "$cuda" -o "$program" \
		"$source" -L"$folder" -lmedusa "$@"
	assert_exit "link ${program##*/}" 0
}

answered_by() { # name of the run of abi_ways, library, mode: every way but a version of an opened library leads to that library
	local expected=$2 mode=$3
	assert_exit "$1" 0
	assert_equal "what the dynamic linker says to $1" "" "$(grep -vF '[Medusa]' "$work/$1.err" | grep -iE 'version|symbol|libmedusa.*\.so:')"
	assert_equal "mode, $1" "called mode $mode" "$(grep ^called "$work/$1.out")"
	for way in linked dlsym dlvsym dlsym-program dlvsym-program dlsym-library; do
		assert_equal "functions that $way of $1 finds in $expected" "$functions" "$(grep -cE "^$way [^ ]* $expected\$" "$work/$1.out")"
	done
	# dlvsym is not hooked, and a handle leads to the library that was opened.
	assert_equal "functions that dlvsym-library of $1 finds in the null library" "$functions" \
		"$(grep -cE '^dlvsym-library [^ ]* libmedusa\.so(\.0)?$' "$work/$1.out")"
}

for program in versioned before; do
	folder=$lib
	[ $program = versioned ] || folder=$work/before
	for binding in lazy now; do
		section "a program linked with libmedusa.so, $program, $binding"
		ways=$work/ways-$program-$binding
		link "$ways" tests/e2e/abi_ways.c "$folder" -Wl,-z,$binding
		assert_equal "versions that it needs" "$([ $program = before ] || echo "$node")" "$(readelf -V "$ways" | grep -o 'Name: MEDUSA[^ ]*' | sed 's/Name: //')"
		assert_equal "library that it needs" "$([ $program = before ] && echo libmedusa.so || echo libmedusa.so.0)" "$(dynamic "$ways" NEEDED | grep medusa)"
		for bind_now in "" 1; do
			by=$program-$binding-now$bind_now
			environment=(LD_BIND_NOW=$bind_now)
			run "$by-null" env "${environment[@]}" "$ways" "$node" libmedusa.so.0
			answered_by "$by-null" 'libmedusa\.so(\.0)?' none
			run "$by-capture" env "${environment[@]}" "$(preload capture)" MEDUSA_TRACE="$work/ways.mtrace" "$ways" "$node" libmedusa.so.0
			answered_by "$by-capture" 'libmedusa-capture\.so' capture
			run "$by-restore" env "${environment[@]}" "$(preload restore)" "$ways" "$node" libmedusa.so.0
			answered_by "$by-restore" 'libmedusa-restore\.so' restore
		done
	done
done

section "an engine in small: captured, proven and restored"
page=docs/man/medusa_graph_output_get.3
fenced "$page" example output >"$work/engine.c"
fenced "$page" output output >"$work/expected"
for program in versioned before; do
	folder=$lib
	[ $program = versioned ] || folder=$work/before
	mkdir "$work/$program.engine"
	engine=$work/$program.engine/engine # an artifact holds for a program of its name
	link "$engine" "$work/engine.c" "$folder" -L"$lib/hostcuda" -l:libcuda.so.1
	run alone "$engine"
	assert_same_file "$work/expected" "$work/alone.out"
	run capture medusa-capture --vary program -o "$work/$program.medusa" -- "$engine"
	assert_exit capture 0
	for bind_now in "" 1; do
		run restored env LD_BIND_NOW=$bind_now medusa-restore "$work/$program.medusa" -- "$engine"
		assert_same_file "$work/expected" "$work/restored.out"
		assert_contains "$work/restored.err" "the output is of type int32"
	done
done
run restored medusa-restore "$work/versioned.medusa" -- "$work/before.engine/engine"
assert_contains "$work/restored.err" "the output is of type int32" # one program or the other: the artifact does not know

section "structs of older and newer programs"
mkdir "$work/sizes"
link "$work/sizes/engine" tests/e2e/abi_sizes.c "$lib" -lmedusa-sched # by the name that the artifact holds for
run sizes medusa-restore "$work/versioned.medusa" -- "$work/sizes/engine"
assert_exit sizes 0
assert_equal "what became of them" "newer stats: ok, known 1, later 0
older stats: ok, behind its end 5a
newer gpus, later 0: ok, limit 2000, behind its end 5a
newer gpus, later 1: invalid argument, limit 0, behind its end 5a" "$(cat "$work/sizes.out")"

section "a program that needs a later release"
mkdir "$work/later"
echo 'MEDUSA_9.9 { global: medusa_later; };' >"$work/later.map"
echo 'void medusa_later(void); void medusa_later(void) {}' >"$work/later.c"
run later gcc -shared -fPIC -Wl,-soname,libmedusa.so.0 -Wl,--version-script="$work/later.map" -o "$work/later/libmedusa.so" "$work/later.c"
assert_exit later 0
echo 'void medusa_later(void); int main(void) { medusa_later(); return 0; }' >"$work/needs_later.c"
link "$work/needs_later" "$work/needs_later.c" "$work/later"
for preloaded in "" "$(preload restore)"; do
	run needs_later env $preloaded "$work/needs_later"
	assert_exit needs_later 1
	assert_contains "$work/needs_later.err" "version \`MEDUSA_9.9' not found (required by $work/needs_later)"
done

section "a device address is a CUdeviceptr, in C and in C++"
cat >"$work/address.c" <<'END'
#include <cuda.h>
#include <medusa/medusa.h>

int main(void)
{
	CUdeviceptr address = 4096;
	size_t bytes = 1;

	medusa_bind("all", address, bytes, MEDUSA_BIND_STATE);
	medusa_graph_output(0, 0, address, bytes);
	return medusa_graph_output_get("decode", 1, 0, &address, &bytes) == MEDUSA_ERR_NOT_FOUND ? 0 : 1;
}
END
for language in c c++; do
	if ! echo 'int main() { return 0; }' | gcc -x "$language" -fsyntax-only - 2>/dev/null; then
		echo "no compiler of $language here: skipped the program in it"
		continue
	fi
	run address gcc -x "$language" -Wall -Wextra -Wpedantic -Wconversion -Werror -Iinclude -isystem "$cuda" -o "$work/address" "$work/address.c" -L"$lib" -lmedusa
	assert_exit address 0
	run address "$work/address"
	assert_exit address 0
done
finish
