#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A child that is made by a system call, which tells nobody, waits for no lock that a thread of its parent holds.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/held_subject" "$MEDUSA_BUILD/tests/images/restore_kernels.host.so")
host=("$MEDUSA_BUILD/tests/subjects/host_subject" "${subject[1]}")
if [ -n "${SAN:-}${TSAN:-}" ]; then
	echo "skipped: the subject has an allocator of its own, as a sanitizer has"
	exit 77
fi
run artifact medusa-capture -o "$work/host.medusa" -- "${host[@]}"
assert_exit artifact 0

# Each process begins anew, because tables that have grown have room for a while.
for what in captured restored verified; do
	section "$what: a thread of the parent stands still at each place where the library asks for memory"
	library=restore verify=
	[ $what != captured ] || library=capture
	[ $what != verified ] || verify=1
	places=0
	while [ $places -lt 100 ]; do
		MEDUSA_TRACE=$work/held.mtrace MEDUSA_ARTIFACT=$work/host.medusa MEDUSA_VERIFY=$verify \
			run held env "$(preload $library)" "${subject[@]}" $places $places
		assert_exit held 0
		[ "$(cat "$work/held.out")" = stopped ] || break
		places=$((places + 1))
	done
	assert_equal "the end" "no more places" "$(cat "$work/held.out")"
	assert_at_least "places where a thread stood still" 5 $places
done
finish
