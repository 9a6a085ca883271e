#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The rules of `make lint` that are quick find what they are for, in a small tree of their own; hooks and workflow call what is there.
. "$(dirname "$0")/lib.sh"

tree=$work/tree
mkdir -p "$tree/tests" "$tree/docs/man" "$tree/models/torch/medusa" "$tree/models/vllm/medusa_vllm" "$tree/bench/results"
cp -r tests/lint "$tree/tests/"
cp .clang-format VERSION CHANGELOG.md "$tree/"
ln -s ../../../VERSION "$tree/models/torch/medusa/VERSION"
ln -s ../../../VERSION "$tree/models/vllm/medusa_vllm/VERSION"
printf 'int good(void);\n' >"$tree/good.c"
cp docs/man/medusa-sign.1 "$tree/docs/man/"
# However the user has set up git, and without a repository around.
git() { command git -C "$tree" -c user.name=test -c user.email=test@localhost "$@"; }
git init -q
again() { # name of the run, rule, its arguments...
	local name=$1 rule=$2
	shift 2
	git add -A
	run "$name" env GIT_CONFIG_GLOBAL=/dev/null bash "$tree/tests/lint/$rule.sh" "$@"
}
found() { # rule, what it says, where; the file is put right afterwards
	again "$1" "$1"
	assert_exit "$1" 1
	assert_contains "$work/$1.out" "$2"
	assert_contains "$work/$1.out" "$3"
}

section "nothing to find"
for rule in format spaces declarations version; do
	again clean $rule
	assert_exit clean 0
	assert_equal "what $rule says" "" "$(cat "$work/clean.out" "$work/clean.err")"
done

section "format"
printf 'int  bad( void );\n' >"$tree/bad.c"
found format "bad.c: run clang-format" "-i bad.c"
assert_lacks "$work/format.out" good.c
again named format good.c
assert_exit named 0
again named format good.c bad.c
assert_exit named 1
again absent format nowhere.c
assert_exit absent 1
rm "$tree/bad.c"

section "comments"
for word in It Its They Those "This one"; do
	printf '/* %s is what nobody can name. */\nint bad;\n' "$word" >"$tree/bad.c"
	found rules "opens with a pronoun" bad.c:1
done
printf '/* Italic text is no pronoun. */\nint bad;\n' >"$tree/bad.c"
again rules rules
assert_lacks "$work/rules.out" "opens with a pronoun"
rm "$tree/bad.c"

section "declarations"
begins() { # the body of a function
	printf 'int bad(int a)\n{\n%b\n}\n' "$1" >"$tree/bad.c"
}
for declared in 'int b = a;' 'struct one *b, c[2] = {{0}};' 'const char *b = "};",\n\t\t   *c;' 'int (*b)(int) = bad;' 'MD_AUTO_FREE char *b;' \
	'MD_CLEANUP(md_x) struct x b = {\n\t\t.field = 1,\n\t};' 'static const struct {\n\t\tint of;\n\t} b[] = {{1}};' \
	'struct {\n\t\tint of;\n\t} b;' '\n\tint b;\n#if 1\n\tint c;\n#endif' 'int b; /* why */' '/* why */\n\tuint64_t b;' 'int b = a;\n\t__typeof__(b) c;'; do
	begins "\t$declared\n\n\treturn a;"
	found declarations "a blank line after the declarations that begin a block" "bad.c:$(grep -n '^$' "$tree/bad.c" | tail -n 1 | cut -d: -f1):"
	begins "\t$declared\n\treturn a;"
	again whole declarations
	assert_exit whole 0
done
for block in 'if (a) {' 'for (;;) {' '} else {' 'do {' '{' 'case 1: {'; do
	begins "\tcall(a);\n\t$block\n\t\tint b = a;\n\n\t\tcall(b);\n\t}"
	found declarations "a blank line after the declarations that begin a block" bad.c:6:
done
begins '\tint b;\n\n\tint c;\n\n\treturn a;' # all that stands before the second blank line is declarations, too
again both declarations
assert_count "$work/both.out" bad.c: 2
for fine in '/* why */\n\n\tcall(a);' 'call(a);\n\n\tint b = a;\n\n\tcall(b);' 'a = 1;\n\n\treturn a;' 'return a;\n\n' 'call(&(struct x){\n\t\t.a = 1,\n\n\t\t.b = 2,\n\t});\n\n\tcall(a);'; do
	begins "\t$fine"
	again fine declarations
	assert_exit fine 0
done
printf 'struct __attribute__((packed)) {\n\tint one;\n\n\tint two;\n} whole;\n#define M(a)\\\n\t{ \\\n\tint b; \\\n\\\n\tcall(b); }\n' >"$tree/bad.c"
again types declarations
assert_exit types 0
again named declarations good.c
assert_exit named 0
rm "$tree/bad.c"

section "names"
mkdir -p "$tree/tools" "$tree/tests/subjects"
printf 'int md_good(void);\nconst char *knobs[] = {"MEDUSA_KNOB", "MEDUSA_TRUSTED_KEYS"};\n' >"$tree/other.c"
printf '%s\n' 'See `other.c`, `md_good` in `other.c`, and MEDUSA_KNOB.' '```' '`absent.c`' '```' >"$tree/some.md"
printf '/* As good.c says. */\nint bad;\n' >"$tree/bad.c"
again right names
assert_exit right 0
named() { # a line of a document, what is wrong with it
	printf '%s\n' "$1" >"$tree/some.md"
	found names "$2" some.md
}
named 'See `absent.c`.' 'absent.c is no file of the tree'
named 'See `docs/good.c`.' 'docs/good.c is no file of the tree'
named '`md_absent` is called.' 'nothing in the code is called md_absent'
named '`md_good` in `good.c` is called.' 'good.c has no md_good'
named $'`md_good`\n(`good.c`) is called.' 'good.c has no md_good'
named 'Set MEDUSA_NONE.' 'MEDUSA_NONE stands in some.md, and nothing in the tree knows it'
rm "$tree/some.md"
printf '.TH MEDUSA_TITLE 7\nSet HOSTCUDA_NONE.\n' >"$tree/docs/man/some.7"
found names 'HOSTCUDA_NONE stands in docs/man/some.7' tree
assert_lacks "$work/names.out" MEDUSA_TITLE
rm "$tree/docs/man/some.7"
printf '/*\n * As some/absent.h says.\n */\nint bad; /* and good.c */\n' >"$tree/bad.c"
found names 'bad.c:2: the comment names some/absent.h' bad.c
printf '/* As none says. */\nint bad;\n' >"$tree/bad.c"
printf 'int main(void);\n' >"$tree/tools/medusa-good.c"
printf 'tools/   commands: medusa-other\n' >"$tree/ARCHITECTURE.md"
found names 'the picture of layers lacks medusa-good' ARCHITECTURE.md
printf 'tools/   commands: medusa-other, -good\n' >"$tree/ARCHITECTURE.md"
for settings in 'getenv("SUBJECT_HABIT")' 'number("SUBJECT_HABIT", 3)'; do
	printf '/* An engine. */\nint a = %s;\n' "$settings" >"$tree/tests/subjects/some_subject.c"
	found names 'no comment says what SUBJECT_HABIT does' tests/subjects/some_subject.c
	printf '/* An engine. HABIT: its habit. */\nint a = %s;\n' "$settings" >"$tree/tests/subjects/some_subject.c"
	again right names
	assert_exit right 0
done
rm -r "$tree/bad.c" "$tree/other.c" "$tree/ARCHITECTURE.md" "$tree/tools" "$tree/tests/subjects"

section "ends of lines"
for bad in 'space \n' 'tab\t\n' 'dos\r\n' 'no end'; do
	printf "$bad" >"$tree/bad.txt"
	found spaces "line" bad.txt
	again named spaces good.c
	assert_exit named 0
	mv "$tree/bad.txt" "$tree/bench/results/"
	again own spaces
	assert_exit own 0
	rm "$tree/bench/results/bad.txt"
done

section "the version, stated twice"
stated() { # file, line
	printf '%s\n' "$2" >"$tree/$1"
	found version ":" "$1:1:$2"
	rm "$tree/$1"
}
stated Makefile "VERSION := 9.9.9"
stated some.md "This is medusa $(cat VERSION)."
stated pyproject.toml 'version = "9.9"'
stated some.py '__version__ = "9.9"'
stated some.h '#define MEDUSA_VERSION_MAJOR 9'
stated docs/man/some.3 '.TH SOME 3 "2026-01-01" "medusa 9.9" "Medusa"'
for heading in "## [9.9.9] - unreleased" "## [$(cat VERSION)]" "# none"; do
	{ echo "$heading" && sed 's/^## /### /' CHANGELOG.md; } >"$tree/CHANGELOG.md"
	found version 'CHANGELOG.md does not begin with the release of VERSION' "$([ "$heading" = "# none" ] && echo "no line begins" || echo "$heading")"
done
for heading in "## [$(cat VERSION)] - unreleased" "## $(cat VERSION) - 2030-01-31"; do
	echo "$heading" >"$tree/CHANGELOG.md"
	again dated version
	assert_exit dated 0
done
rm "$tree/models/torch/medusa/VERSION"
cp VERSION "$tree/models/torch/medusa/VERSION"
found version "is no link to the tree's VERSION" models/torch/medusa/VERSION
echo 1.0-beta >"$tree/VERSION"
found version "three numbers" "1.0-beta"

section "the project's own rules"
command mv "$tree" "$work/whole"
mkdir -p "$tree/tests/lint"
cp tests/lint/rules.sh "$tree/tests/lint/"
printf '/* SPDX-License-Identifier: Apache-2.0 */\nint good(void);\n' >"$tree/good.c"
git init -q
again rules rules
assert_exit rules 0
assert_equal "what rules says of nothing" "" "$(cat "$work/rules.out" "$work/rules.err")"
broken() { # file, its text, what the rule says
	mkdir -p "$tree/$(dirname "$1")"
	printf '/* SPDX-License-Identifier: Apache-2.0 */\n%b\n' "$2" >"$tree/$1"
	found rules "$3" "$1"
	rm "$tree/$1"
}
broken capture/record/one.c 'exit(1);' 'nothing may end it'
broken restore/verify/one.c 'printf("x");' 'nothing may write to its stdout'
broken tools/one.c 'strcpy(a, b);' 'unbounded string functions'
broken analyze/one.c 'a = realloc(a, 2 * n);' 'arrays grow through base/array.h'
broken tests/one.h 'a = realloc(a, 2 * n);' 'arrays grow through base/array.h'
broken models/one.cu 'z = z * 0x94d049bb133111ebull;' 'random numbers are those of base/splitmix.h'
broken restore/one.c 'r->stats.graphs_restored--;' 'leaves the statistics in md_restore_graph_unmake'
broken tools/one.c 'say("%s: out of memory", path);' 'out of memory is said as'
broken restore/one.c 'say("no memory for %u graphs", 2);' 'out of memory is said as'
broken api/one.h '#define API __attribute__((visibility("default")))' 'is MD_EXPORT'
broken restore/one.c 'static __thread int mine;' 'is _Thread_local'
broken models/one.c 'size_t n = sizeof *p;' 'write sizeof(x)'
broken models/one.h 'size_t n = sizeof (p);' 'write sizeof(x)'
broken base/one.c 'getenv("HOME");' 'secure_getenv'
broken tools/one.c 'fopen(path, "r");' 'open files through base/file.h, which'
broken tools/one.c 'md_descriptor_open(path);' 'open files through base/file.h: these'
broken format/one.c 'mmap(NULL, n, PROT_READ, flags, fd, 0);' 'read files, do not map them: who'
broken hostcuda/one.c 'mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);' 'hostcuda maps only memory'
broken docs/one.c '/* TO''DO */' 'unfinished work'
broken capture/one.c 'pthread_create(&thread, NULL, run, NULL);' 'threads are started by base/thread.h'
broken docs/one.c '/* ---- reading -------\n */' 'a banner is one line'
broken docs/one.c '/* ---- reading\n * ---- */' 'a banner is one line'
broken docs/one.c '/* see /ho''me/me */' 'paths of one machine'
broken api/one.c "$(printf '\\n%.0s' {1..700})" '702 lines: divide it'
mkdir -p "$tree/tools" "$tree/base"
printf '/* SPDX-License-Identifier: Apache-2.0 */\n' | tee "$tree/tools/same.c" >"$tree/base/same.c"
found rules 'file names that are not unique' same.c
for folder in tools base; do
	printf '/* SPDX-License-Identifier: Apache-2.0 */\nstruct one_name {\n\tint of_%s;\n};\n' $folder >"$tree/$folder/of_$folder.h"
done
found rules 'types that headers define twice: struct one_name' ''
echo 'int bare;' >"$tree/tools/same.c"
found rules 'its first line is no SPDX line' tools/same.c
rm -r "$tree"
command mv "$work/whole" "$tree"

section "what nobody calls"
mkdir "$tree/some"
printf 'int lone(void);\nint called(void);\nint pasted_name(void);\n#define UNUSED 1\n' >"$tree/some/offer.h"
printf 'static inline int idle(void)\n{\n\treturn 1;\n}\n' >>"$tree/some/offer.h"
printf '/* lone() in a comment */ int called(void) { return lone(); }\nint lone(void) { return 0; }\n' >"$tree/some/offer.c"
printf 'int pasted_name(void) { return puts("lone UNUSED idle"); }\n' >>"$tree/some/offer.c"
printf '#define CALL(x) pasted_##x\nint other(void) { return called() + CALL(name)(); }\n' >"$tree/some/other.c"
found uncalled 'nobody uses lone but its own file' some/offer.h:1
assert_contains "$work/uncalled.out" "some/offer.h:4: nobody uses UNUSED"
assert_contains "$work/uncalled.out" "some/offer.h:5: nobody uses idle"
assert_lacks "$work/uncalled.out" called
assert_lacks "$work/uncalled.out" pasted_name
printf 'int use(void) { return lone() + idle() + UNUSED; }\n' >>"$tree/some/other.c"
again uncalled uncalled
assert_exit uncalled 0
rm -r "$tree/some"

section "the ABI"
abi() { # name of the run, what sed changes in medusa.h, what sed changes in the map
	mkdir -p "$tree/include/medusa" "$tree/api" "$tree/build/lib"
	cp include/medusa/*.h "$tree/include/medusa/"
	cp -r api/abi "$tree/api/"
	cp "$MEDUSA_BUILD/lib/libmedusa-sched.so" "$tree/build/lib/"
	sed -i "$2" "$tree/include/medusa/medusa.h"
	sed "${3:-}" api/libmedusa.map >"$work/map"
	if [ -n "$2" ] && cmp -s include/medusa/medusa.h "$tree/include/medusa/medusa.h"; then fail "'$2' changes medusa.h" "nothing changed"; fi
	if [ -n "${3:-}" ] && cmp -s api/libmedusa.map "$work/map"; then fail "'$3' changes the map" "nothing changed"; fi
	run compile env -C "$tree" gcc -shared -fPIC -fvisibility=hidden -g -std=gnu11 -D_GNU_SOURCE -Iinclude -I"$PWD" -o build/lib/libmedusa.so \
		"$PWD"/api/null_api.c "$PWD"/api/{api_names,swap_api,api_check,api_result}.c "$PWD"/swap/swap_client.c "$PWD"/backbone/share.c -Wl,-soname,libmedusa.so.0 -Wl,--version-script="$work/map"
	assert_exit compile 0
	BUILD=build again "$1" abi
}
breaks() { # what sed changes in medusa.h, what the rule says, what sed changes in the map
	abi breaks "$1" "${3:-}"
	assert_exit breaks 1
	assert_contains "$work/breaks.out" "programs that are linked with it break"
	assert_contains "$work/breaks.out" "$2"
}
grows() { # what sed changes in medusa.h, what the rule says
	abi grows "$1"
	assert_exit grows 1
	assert_contains "$work/grows.out" "is not as api/abi/libmedusa.xml records it"
	assert_contains "$work/grows.out" "$2"
	assert_lacks "$work/grows.out" "break"
	run recorded env BUILD=build UPDATE=1 bash "$tree/tests/lint/abi.sh"
	BUILD=build again recorded abi
	assert_exit recorded 0
	cmp -s "$tree/api/abi/libmedusa.xml" api/abi/libmedusa.xml && fail "another record" "the same"
}
if command -v abidiff >/dev/null && command -v abidw >/dev/null; then
	abi same ""
	assert_exit same 0
	assert_equal "what it says" "" "$(cat "$work/same.out" "$work/same.err")"
	breaks '/int from_profile;/d' "'int from_profile'"
	breaks 's/uint64_t blocks;/uint64_t blocks, between;/' "'uint64_t between'"
	breaks 's/uint64_t block_bytes;/uint32_t block_bytes;/' "'uint64_t block_bytes' changed"
	breaks 's/MEDUSA_ERR_MISMATCH = 60/MEDUSA_ERR_MISMATCH = 61/' "from value '60' to '61'"
	breaks '' 'medusa_mark@@MEDUSA_0.2' '/medusa_mark;/d; s/^};/local: medusa_mark; };/'
	breaks '' 'medusa_mark@@MEDUSA_0.2' 's/MEDUSA_0.2/MEDUSA_0.3/'
	grows '/^struct medusa_kv {/,/^};/s/uint64_t ns;.*/&\n\tuint64_t more;/' "'uint64_t more'"
	grows 's/MEDUSA_ERR_MISMATCH = 60/&,\n\tMEDUSA_ERR_NEW = 61/' "'medusa_result::MEDUSA_ERR_NEW' value '61'"
else
	echo "no abidiff here: skipped what it finds"
fi
mkdir "$work/without"
for tool in bash sed grep dirname mktemp; do ln -s "$(command -v $tool)" "$work/without/$tool"; done
run without env PATH="$work/without" bash "$tree/tests/lint/abi.sh"
assert_exit without 77
assert_contains "$work/without.out" "abidiff is not installed, so the ABI was not compared"

section "hooks and workflow"
entries=$(sed -n 's/^ *entry: //p' .pre-commit-config.yaml)
assert_at_least "hooks" 5 "$(wc -w <<<"$entries")"
for entry in $entries; do
	checks=$((checks + 1))
	[ -x "$entry" ] || fail "an executable $entry, as .pre-commit-config.yaml says" "$(ls -l "$entry" 2>&1)"
done
assert_equal "hooks that are downloaded" "" "$(grep '^ *- *repo:' .pre-commit-config.yaml | grep -v 'repo: local$')"
for command in "make check" "make lint"; do
	assert_count .ci/run "$command" 1
	assert_count .github/workflows/check.yml "run: $command" 1
done
assert_count .github/workflows/check.yml "run: make tidy" 1
finish
