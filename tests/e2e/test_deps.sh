#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `make check` and `make demo` install, and when they ask, with an apt-get of our own that only says what it was told.
. "$(dirname "$0")/lib.sh"
[ -z "${SAN:-}${TSAN:-}" ] || { echo "installs nothing that a sanitizer could look at"; exit 77; }

mkdir "$work/fake"
cat >"$work/fake/apt-get" <<'END'
#!/bin/sh
echo "apt-get $*" >>"$FAKE/log"
[ ! -e "$FAKE/broken" ] || exit 100
case $* in install*) : >"$FAKE/criterion" ;; esac
END
printf '#!/bin/sh\necho sudo >>"$FAKE/log"\nexec "$@"\n' >"$work/fake/sudo"
cat >"$work/fake/pkg-config" <<END
#!/bin/sh
case "\$*" in *--exists*criterion*) [ -e "\$FAKE/criterion" ]; exit ;; esac
exec $(command -v pkg-config) "\$@"
END
chmod +x "$work"/fake/*
# A user's settings are not the test's.
unset CI MEDUSA_DEPS
export FAKE=$work/fake
PATH=$work/fake:$PATH

anew() { rm -f "$FAKE/log" "$FAKE/criterion" "$FAKE/broken"; touch "$FAKE/log"; }
installed() { grep -c '^apt-get install.* libcriterion-dev$' "$FAKE/log"; }
on_terminal() { # name of the run, what is typed, command...
	local name=$1 typed=$2
	shift 2
	run "$name" python3 - "$typed" "$@" <<'END'
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
os.write(terminal, sys.argv[1].encode())
said = b""
try:
    while part := os.read(terminal, 4096):
        said += part
except OSError:  # the terminal's other side is closed
    pass
sys.stdout.write(said.decode().replace("\r\n", "\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
}
deps=(make --no-print-directory deps)

section "without a terminal: installs, and says so"
anew
run bare "${deps[@]}" </dev/null
assert_exit bare 0
assert_contains "$work/bare.out" "deps: installing libcriterion-dev"
assert_lacks "$work/bare.out" "[Y/n]"
assert_equal "installations" 1 "$(installed)"
run enough "${deps[@]}" </dev/null
assert_exit enough 0
assert_equal "words where nothing is missing" "" "$(cat "$work/enough.out")"
assert_equal "installations" 1 "$(installed)"

section "on a terminal: asks, with the list"
for typed in $'y\n' $'\n' $'Yes\n'; do
	anew
	on_terminal yes "$typed" "${deps[@]}"
	assert_exit yes 0
	assert_contains "$work/yes.out" "deps: these Debian packages are missing: libcriterion-dev"
	assert_contains "$work/yes.out" "install all this now? [Y/n]"
	assert_equal "installations after '$typed'" 1 "$(installed)"
done
for typed in $'n\n' $'what\n' $'\x04'; do
	anew
	on_terminal no "$typed" "${deps[@]}"
	assert_exit no 2
	assert_contains "$work/no.out" "deps: to install what is missing: apt-get install libcriterion-dev"
	assert_equal "what apt-get was told after '$typed'" "" "$(cat "$FAKE/log")"
done

section "on a terminal that may not be asked"
for setting in MEDUSA_DEPS=auto CI=true; do
	anew
	on_terminal unasked "" env "$setting" "${deps[@]}"
	assert_exit unasked 0
	assert_lacks "$work/unasked.out" "[Y/n]"
	assert_equal "installations with $setting" 1 "$(installed)"
done

section "never"
for command in deps check demo demo-cluster; do
	anew
	run never env MEDUSA_DEPS=never CI=true make --no-print-directory $command ONLY=test_map </dev/null
	assert_exit never 2
	assert_contains "$work/never.err" "deps: to install what is missing: apt-get install libcriterion-dev"
	assert_contains "$work/never.err" "MEDUSA_DEPS=auto"
	assert_lacks "$work/never.out" "passed"
	assert_equal "what apt-get was told" "" "$(cat "$FAKE/log")"
done
: >"$FAKE/criterion"
run headers env MEDUSA_DEPS=never CUDA_HOME=/nowhere tools/deps.sh "$work/elsewhere"
assert_exit headers 1
assert_contains "$work/headers.err" "deps: to have the CUDA headers: install a CUDA 13 toolkit, set CUDA_HOME, or allow to fetch"
assert_lacks "$work/headers.err" "apt-get"
anew
run strange env MEDUSA_DEPS=perhaps "${deps[@]}"
assert_exit strange 2
assert_contains "$work/strange.err" 'MEDUSA_DEPS is "perhaps"; it may be auto or never'

section "etcd, which the demo of a cluster needs and nothing else does"
mkdir "$work/without"
for folder in ${PATH//:/ }; do
	[ "$folder" = "$work/fake" ] || ln -s "$folder"/* "$work/without" 2>/dev/null
done
rm -f "$work/without/etcd" "$work/without/etcdctl"
anew
: >"$FAKE/criterion"
without=(env PATH="$work/fake:$work/without")
run enough "${without[@]}" "${deps[@]}" </dev/null
assert_exit enough 0
assert_equal "words where nothing is missing" "" "$(cat "$work/enough.out")"
run cluster "${without[@]}" MEDUSA_DEPS=never make --no-print-directory demo-cluster </dev/null
assert_exit cluster 2
assert_contains "$work/cluster.err" "deps: to install what is missing: apt-get install etcd-server etcd-client"
assert_equal "what apt-get was told" "" "$(cat "$FAKE/log")"
run etcd "${without[@]}" tools/deps.sh --cluster build </dev/null
assert_exit etcd 0
assert_count "$FAKE/log" "--no-install-recommends etcd-server etcd-client" 1

section "an apt-get that fails"
anew
touch "$FAKE/broken"
run broken "${deps[@]}" </dev/null
assert_exit broken 2
assert_contains "$work/broken.err" "deps: apt-get could not install: libcriterion-dev"

section "make check does all of it"
anew
run check env -u MAKEFLAGS LOGS="$work/logs" make --no-print-directory check ONLY=test_map </dev/null
assert_exit check 0
assert_contains "$work/check.out" "deps: installing libcriterion-dev"
assert_contains "$work/check.out" "1 passed"
assert_equal "installations" 1 "$(installed)"
finish
