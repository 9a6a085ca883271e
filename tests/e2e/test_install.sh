#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make install: another program finds headers and library by pkg-config, and the installed commands do their work.
. "$(dirname "$0")/lib.sh"
touch "$work/begun"

root=$work/root
languages=c
if echo 'int main() { return 0; }' | gcc -x c++ -fsyntax-only - 2>/dev/null; then
	languages="c c++"
else
	echo "no C++ compiler here: skipped the header and the program in C++"
fi
run install make --no-print-directory install DESTDIR="$root" PREFIX=/usr ${SAN:+SAN=$SAN}
assert_exit install 0
for command in tools/medusa-*.c; do
	name=$(basename "$command" .c)
	assert_file "$root/usr/bin/$name"
	assert_file "$root/usr/share/man/man1/$name.1"
done
for page in medusa medusa-torch medusa-vllm; do assert_file "$root/usr/share/man/man7/$page.7"; done
while read -r function; do # by a page or by a link that leads to one
	page=$root/usr/share/man/man3/$function.3
	[ "$(head -c 4 "$page")" = ".so " ] && page=$root/usr/share/man/$(sed 's/^\.so //' "$page")
	run page mandoc -T ascii "$page"
	assert_exit page 0
	assert_at_least "lines of the page on $function" 20 "$(wc -l <"$work/page.out")"
done < <(sed 's/@.*//' tests/lint/exports-libmedusa.txt tests/lint/exports-libmedusa-sched.txt)
for library in libmedusa libmedusa-capture libmedusa-restore libmedusa-sched libmedusa-swap; do
	assert_file "$root/usr/lib/$library.so"
done
for kind in nodes functions; do
	for file in simulator/$kind/*.yaml; do
		assert_same_file "$file" "$root/usr/share/medusa/$kind/${file##*/}"
	done
done
for document in $(mandoc -T ascii "$root/usr/share/man/man1/medusa-simulate.1" | sed 's/.\x08//g' | grep -o 'share/medusa/doc/[a-z-]*\.md' | sort -u); do
	assert_same_file "docs/${document##*/}" "$root/usr/$document"
done
assert_file "$root/usr/share/medusa/doc/scheduler.md"
for library in libmedusa libmedusa-sched; do
	soname=$(readlink "$root/usr/lib/$library.so")
	assert_equal "link of the soname" "$library.so.$(cat VERSION)" "$(readlink "$root/usr/lib/$soname")"
	assert_equal "soname of $library" "[$soname]" "$(readelf -d "$root/usr/lib/$library.so" | sed -n 's/.*(SONAME).*: //p')"
done
run installed env LD_LIBRARY_PATH="$root/usr/lib" "$root/usr/bin/medusa-simulate" --node "$root/usr/share/medusa/nodes/torpor-v100.yaml" \
	--functions "$root/usr/share/medusa/functions/torpor-models.yaml" --trace torpor --count 8 --duration 1min --quiet
assert_exit installed 0
run named env --chdir / "$root/usr/bin/medusa-simulate" --node torpor-v100 --functions torpor-models --trace torpor --count 8 --duration 1min
assert_exit named 0
assert_no_file "$root/usr/lib/libcuda.so.1" # a device of ours never takes the real driver's place

section "no path of the build in what was installed"
assert_equal "run paths into the build" "" "$(readelf -d "$root"/usr/bin/* "$root"/usr/lib/*.so | grep -E 'R(UN)?PATH' | grep -v 'ORIGIN')"
for package in medusa medusa-sched; do
	assert_file "$root/usr/lib/pkgconfig/$package.pc"
	assert_lacks "$root/usr/lib/pkgconfig/$package.pc" "$root"
done

section "each installed header alone, as C and as C++"
for header in "$root"/usr/include/medusa/*.h; do
	for language in $languages; do
		echo "#include <medusa/${header##*/}>" >"$work/alone"
		run alone gcc -x $language -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$root/usr/include" "$work/alone"
		assert_exit alone 0
	done
done

section "pkg-config"
export PKG_CONFIG_PATH=$root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
run version pkg-config --modversion medusa
assert_exit version 0
assert_equal "version" "$(cat VERSION)" "$(cat "$work/version.out")"
run version pkg-config --modversion medusa-sched
assert_equal "version of the scheduler" "$(cat VERSION)" "$(cat "$work/version.out")"
for page in docs/man/*.[1-9]; do
	[ "$(head -c 4 "$page")" = ".so " ] && continue # a link to another page
	assert_contains "$root/usr/share/man/man${page##*.}/${page##*/}" "\"medusa $(cat VERSION)\""
done
cat >"$work/program.c" <<'END'
#include <medusa/medusa.h>
#include <stdio.h>

int main(void)
{
	void *exec = 0;
	int result = medusa_graph_get("decode", 1, 0, &exec);
	printf("mode %d, result %d: %s\n", (int)medusa_mode(), result, medusa_reason());
	return exec != 0;
}
END
program=$work/program
for language in $languages; do
	section "a program linked by pkg-config, $language"
	run compile gcc -x $language -Wall -Wextra -Werror $(pkg-config --cflags medusa) -o "$program" "$work/program.c" $(pkg-config --libs medusa)
	assert_exit compile 0
	run program env LD_LIBRARY_PATH="$root/usr/lib" "$program"
	assert_exit program 0
	assert_contains "$work/program.out" "mode 0, result 4: "
	assert_equal "what it needs" "[$(readlink "$root/usr/lib/libmedusa.so")]" "$(readelf -d "$program" | sed -n 's/.*(NEEDED).*: \(.*medusa.*\)/\1/p')"
	mv "$root/usr/lib/libmedusa.so" "$work/link-for-a-linker"
	run program env LD_LIBRARY_PATH="$root/usr/lib" "$program" # as where no -dev package is installed
	assert_exit program 0
	mv "$work/link-for-a-linker" "$root/usr/lib/libmedusa.so"
done

section "the scheduler alone, by pkg-config: a worker node needs nothing else"
assert_equal "libraries beside libc and libm" "" \
	"$(readelf -d "$root/usr/lib/libmedusa-sched.so" | grep NEEDED | grep -vE '(lib(c|m|asan|ubsan|tsan)|ld-linux[a-z0-9-]*)\.so')"
cat >"$work/program.c" <<'END'
#include <medusa/scheduler_cluster.h>
#include <stdio.h>

int main(void)
{
	printf("%s, %s\n", medusa_sched_action_name(MEDUSA_SCHED_ACTION_RUN), medusa_sched_reason_name(MEDUSA_SCHED_REASON_NEVER_FITS));
	return 0;
}
END
for language in $languages; do
	run compile gcc -x $language -Wall -Wextra -Werror $(pkg-config --cflags medusa-sched) -o "$program" "$work/program.c" $(pkg-config --libs medusa-sched)
	assert_exit compile 0
	run program env LD_LIBRARY_PATH="$root/usr/lib" "$program"
	assert_exit program 0
	assert_equal "its output" "run, never fits" "$(cat "$work/program.out")"
done

section "the installed commands find their libraries"
export PATH=$root/usr/bin:$PATH
assert_equal "medusa-restore" "$root/usr/bin/medusa-restore" "$(command -v medusa-restore)"
run_live live
capture installed
assert_exit installed 0
run preloaded medusa-restore "$work/installed.medusa" -- sh -c 'echo "$LD_PRELOAD"'
assert_contains "$work/preloaded.out" "$(realpath "$root/usr/lib/libmedusa-restore.so")"
run_restored restored "$work/installed.medusa"
assert_exit restored 0
assert_same_output live restored
assert_restored restored $graphs 0
run verify medusa-verify "$work/installed.medusa" -- "${engine[@]}"
assert_exit verify 0

section "through a symbolic link"
ln -s "$root/usr/bin/medusa-restore" "$work/link"
run link "$work/link" "$work/installed.medusa" -- "${engine[@]}" --report "$work/link.json"
assert_exit link 0
assert_restored link $graphs 0

section "a library that is missing"
rm "$root/usr/lib/libmedusa-restore.so"
run missing medusa-restore "$work/installed.medusa" -- "${engine[@]}"
assert_exit missing 4
assert_contains "$work/missing.err" "libmedusa-restore.so"
section "completion in shells knows every option"
for command in tools/medusa-*.c; do
	name=$(basename "$command" .c)
	completion=$root/usr/share/bash-completion/completions/$name
	assert_file "$completion"
	assert_file "$root/usr/share/zsh/site-functions/_$name"
	assert_file "$root/usr/share/fish/vendor_completions.d/$name.fish"
	long=$("$name" --help | sed -n 's/^  \(-[a-z], \|    \)\(--[a-z-]*\).*/\2/p' | sort)
	run completed bash -c '. "$1"; COMP_WORDS=("$2" --) COMP_CWORD=1; "_${2//-/_}"; printf "%s\n" "${COMPREPLY[@]}" | sort' bash "$completion" "$name"
	assert_exit completed 0
	assert_equal "what bash completes -- to" "$long" "$(cat "$work/completed.out")"
	for option in $long; do
		assert_contains "$root/usr/share/zsh/site-functions/_$name" "$option"
		assert_contains "$root/usr/share/fish/vendor_completions.d/$name.fish" " -l ${option#--} "
	done
	for shell in "zsh $root/usr/share/zsh/site-functions/_$name" "fish $root/usr/share/fish/vendor_completions.d/$name.fish"; do
		command -v "${shell%% *}" >/dev/null || continue # no package of ours needs it
		run syntax ${shell%% *} -n "${shell#* }"
		assert_exit syntax 0
	done
done
touch "$work/some.medusa"
completes() { # expected, words...
	local expected=$1
	shift
	run completed bash -c '. "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); "_${1//-/_}"; printf "%s\n" "${COMPREPLY[@]}" | sort -u' bash \
		"$root/usr/share/bash-completion/completions/$1" "$@"
	assert_equal "what bash completes '$*' to" "$expected" "$(cat "$work/completed.out")"
}
completes "sign" medusa-sign s
completes "$work/some.medusa" medusa-sign sign "$work/som"
completes "--junit" medusa-verify x --ju
completes "$work/some.medusa" medusa-verify x --junit "$work/som"
completes "$work/some.medusa" medusa-verify x --junit = "$work/som"
completes "medusa-verify" medusa-capture -o x -- medusa-ver
completes "$work/some.medusa" medusa-capture -o x -- cat "$work/som"
completes "" medusa-capture --until ""
if command -v fish >/dev/null; then
	run fish fish -c 'source $argv[1]; complete -C "medusa-verify x --nondet"' "$root/usr/share/fish/vendor_completions.d/medusa-verify.fish"
	assert_contains "$work/fish.out" "--nondeterministic"
fi
run shells medusa-verify --completion csh
assert_exit shells 2
assert_contains "$work/shells.err" '"csh" is none of bash, zsh, fish'

section "uninstalled"
echo mine >"$root/usr/share/medusa/mine"
run_limit=120
run uninstall make --no-print-directory uninstall DESTDIR="$root" PREFIX=/usr ${SAN:+SAN=$SAN}
assert_exit uninstall 0
assert_equal "what is left" "$root/usr/share/medusa/mine" "$(find "$root" ! -type d)"
rm "$root/usr/share/medusa/mine"
run uninstall make --no-print-directory uninstall DESTDIR="$root" PREFIX=/usr ${SAN:+SAN=$SAN}
assert_exit uninstall 0
assert_equal "folders of Medusa's that are left" "" "$(find "$root" -name 'medusa*')"

section "libraries in a folder of their own"
multiarch=/usr/lib/machine-linux-gnu
run install make --no-print-directory install DESTDIR="$root" PREFIX=/usr LIBDIR=$multiarch ${SAN:+SAN=$SAN}
assert_exit install 0
assert_file "$root$multiarch/libmedusa-restore.so"
assert_no_file "$root/usr/lib/libmedusa-restore.so"
export PKG_CONFIG_PATH=$root$multiarch/pkgconfig
run libs pkg-config --libs medusa
assert_contains "$work/libs.out" "-L$root$multiarch -lmedusa"
hash -r
run preloaded medusa-restore "$work/installed.medusa" -- sh -c 'echo "$LD_PRELOAD"'
assert_contains "$work/preloaded.out" "$(realpath "$root$multiarch/libmedusa-restore.so")"
run_restored elsewhere "$work/installed.medusa"
assert_restored elsewhere $graphs 0
run uninstall make --no-print-directory uninstall DESTDIR="$root" PREFIX=/usr LIBDIR=$multiarch ${SAN:+SAN=$SAN}
assert_equal "what is left" "" "$(find "$root" ! -type d)"
assert_equal "commands of the tree that were linked anew" "" "$(find "$MEDUSA_BUILD/bin" -type f -newer "$work/begun")"
finish
