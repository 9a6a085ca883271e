#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example of a node loop: what it prints is what its comments promise, each time, with the library alone.
. "$(dirname "$0")/lib.sh"

example=$MEDUSA_BUILD/scheduler/example
cat >"$work/expected.out" <<'END'
    0.0 ms  arrives: request 1 for chat
            swap in weights of chat, 12000 MB
            swap in context of chat, 1000 MB
            run request 1 of chat
            set timer 600200.0 ms
  480.0 ms  transfer done
  500.0 ms  transfer done
  530.0 ms  first token: request 1
  600.0 ms  done: request 1
 1000.0 ms  arrives: request 2 for chat
            run request 2 of chat
 1030.0 ms  first token: request 2
 1100.0 ms  done: request 2
 3000.0 ms  arrives: request 3 for code
            evict context of chat, 1000 MB
            evict weights of chat, 12000 MB
            swap in weights of code, 12000 MB
            swap in context of code, 1000 MB
            run request 3 of code
 3480.0 ms  transfer done
 3500.0 ms  transfer done
 3530.0 ms  first token: request 3
 3600.0 ms  done: request 3
 4000.0 ms  function unregistered: code
            offload context of code, 1000 MB
            offload weights of code, 12000 MB
            offload weights of code, 12000 MB, host memory
 4001.0 ms  arrives: request 4 for code
            reject request 4: unregistered
END

section "two functions on one GPU"
for name in first second; do
	run $name "$example"
	assert_exit $name 0
	assert_same_file "$work/expected.out" "$work/$name.out"
	assert_equal "errors" "" "$(cat "$work/$name.err")"
done

section "nothing but the installed header and the library"
assert_equal "headers of the project" "#include <medusa/scheduler.h>" \
	"$(grep -E '^#include.*(medusa|")' scheduler/example/node_loop.c)"
assert_equal "libraries beside libc and ours" "" \
	"$(readelf -d "$example" | grep NEEDED | grep -vE 'lib(c|medusa-sched|asan|ubsan|tsan)\.so')"
finish
