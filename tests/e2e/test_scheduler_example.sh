#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example of a node loop: what it prints is what its comments promise, each time, with the library alone.
. "$(dirname "$0")/lib.sh"

example=$MEDUSA_BUILD/scheduler/example
cat >"$work/expected.out" <<'END'
    0.0 ms  resident
    0.0 ms  resident
    0.0 ms  arrival: request 1
            run request 1 of chat, after 0 copies
            set timer 601000.0 ms
   30.0 ms  first token: request 1
            set timer 600730.0 ms
   60.0 ms  KV changed: request 1
  100.0 ms  done: request 1
 1000.0 ms  arrival: request 2
            evict context of chat, 1000 MB
            evict weights of chat, 12000 MB
            swap in weights of code, 12000 MB
            swap in context of code, 1000 MB
            run request 2 of code, after 2 copies
            set timer 6000.0 ms
 1480.0 ms  transfer done
 1500.0 ms  transfer done
 1530.0 ms  first token: request 2
 1550.0 ms  cancel: request 2
            abort request 2: cancelled
 1551.0 ms  done: request 2
 2000.0 ms  arrival: request 3
            evict context of code, 1000 MB
            evict weights of code, 12000 MB
            swap in weights of chat, 12000 MB
            swap in context of chat, 1000 MB
            run request 3 of chat, after 2 copies
 2020.0 ms  transfer done
 6000.0 ms  timer
            set timer 7000.0 ms
 7000.0 ms  timer
            abort a copy: timed out
            abort request 3: timed out
            set timer 7005.0 ms
 7001.0 ms  transfer failed
            swap in weights of chat, 12000 MB
            run request 3 of chat, after 1 copies
 7001.0 ms  done: request 3
 7005.0 ms  timer
            set timer 12001.0 ms
 7481.0 ms  transfer done
 7511.0 ms  first token: request 3
 7541.0 ms  KV changed: request 3
 7550.0 ms  arrival: request 4
            join request 4 of chat, after 0 copies
 7580.0 ms  first token: request 4
 7581.0 ms  done: request 3
 7610.0 ms  KV changed: request 4
 7650.0 ms  done: request 4
 8100.0 ms  arrival: request 5
            run request 5 of chat, after 0 copies
 8100.0 ms  arrival: request 6
            set timer 9100.0 ms
 8100.0 ms  arrival: request 7
            reject request 7: quota
 8130.0 ms  first token: request 5
 8160.0 ms  KV changed: request 5
 8200.0 ms  done: request 5
            run request 6 of chat, after 0 copies
 8230.0 ms  first token: request 6
 8260.0 ms  KV changed: request 6
 8300.0 ms  done: request 6
 9000.0 ms  GPU drain
            offload context of chat, 1000 MB
            offload weights of chat, 12000 MB
nobody: 0 served, 0 rejected, 0 ms of the GPU
team: 3 served, 0 rejected, 6300 ms of the GPU
guest: 2 served, 1 rejected, 200 ms of the GPU
END

section "two functions on one GPU, a request that joins another, a client that goes, a copy that hangs, a tenant beyond its limit, and a restart"
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
