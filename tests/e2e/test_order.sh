#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine whose allocator decides by addresses, on a device that hands them out in another order in every process.
. "$(dirname "$0")/lib.sh"
unset HOSTCUDA_SCATTER MEDUSA_ORDER
image=$MEDUSA_BUILD/tests/images/restore_kernels.host.so
subject=("$MEDUSA_BUILD/tests/subjects/order_subject" "$image")

# The order of each run is another one, and the same in every run of this test.
printf '#!/bin/bash\nunset MEDUSA_ORDER\nexport HOSTCUDA_SCATTER=${MEDUSA_SHIFT:+2}1\nexec "$@"\n' >"$work/natural"
chmod +x "$work/natural"

section "captures whose addresses compare alike"
for seed in 1 2 3; do
	run "live$seed" "${subject[@]}" "seed=$seed" bound attributes
	assert_exit "live$seed" 0
	assert_lacks "$work/live$seed.out" "wrong:"
	HOSTCUDA_SCATTER=random run "bound$seed" medusa-capture --keep-traces -o "$work/bound$seed.medusa" -- "${subject[@]}" "seed=$seed" bound attributes
	assert_exit "bound$seed" 0
	assert_contains "$work/bound$seed.err" "verification: 3 passed, 0 failed, 0 not compared"
	assert_lacks "$work/bound$seed.out" "wrong:" # the driver speaks of placed memory as of any other
	HOSTCUDA_SCATTER=random run "restored$seed" medusa-restore "$work/bound$seed.medusa" -- "${subject[@]}" "seed=$seed" bound attributes
	assert_count "$work/restored$seed.err" " restored " 3
	assert_same_file "$work/live$seed.out" "$work/restored$seed.out"
done
assert_equal "lists of places left behind" "" "$(ls "$work" | grep -F .order)"

section "captures whose addresses do not"
for seed in 2 3; do # here it puts things into other places; it happens to be the same ones with 1 and 4
	run "natural$seed" medusa-capture -o "$work/natural$seed.medusa" -- "$work/natural" "${subject[@]}" "seed=$seed" bound
	assert_lacks "$work/natural$seed.err" "verification: 3 passed"
	run "unnamed$seed" medusa-capture -o "$work/unnamed$seed.medusa" -- "$work/natural" "${subject[@]}" "seed=$seed"
	assert_count "$work/unnamed$seed.err" "refused: (step, " 3
	assert_contains "$work/unnamed$seed.err" "in the first capture"
done

section "a cold start in the same order"
run live "${subject[@]}" seed=7
run sequence medusa-capture -o "$work/sequence.medusa" -- "${subject[@]}" seed=7
assert_exit sequence 0
assert_contains "$work/sequence.err" "verification: 3 passed, 0 failed, 0 not compared"
run same medusa-restore "$work/sequence.medusa" -- "${subject[@]}" seed=7
assert_count "$work/same.err" " restored " 3
assert_same_file "$work/live.out" "$work/same.out"

section "cold starts in other orders: refused or right, never wrong"
orders=${ORDERS:-10} # make torture takes more
for order in $(seq "$orders"); do
	HOSTCUDA_SCATTER=$order run "other$order" medusa-restore "$work/sequence.medusa" -- "${subject[@]}" seed=7
	assert_exit "other$order" 0
	assert_same_file "$work/live.out" "$work/other$order.out"
done
assert_at_least "starts that were refused by name" $((orders * 4 / 5)) \
	"$(grep -lE 'nothing is restored: allocation [0-9]+ lies (above|below) allocation [0-9]+ in the artifact, (above|below) it here' "$work"/other*.err | wc -l)"

section "reserved addresses look like no other numbers"
reserving=("$MEDUSA_BUILD/tests/subjects/capture_subject" "${image%/*}/capture_kernels.host.so")
run reserved medusa-capture --no-verify -o "$work/reserved.medusa" -- "${reserving[@]}"
mapfile -t upper < <(sed -nE 's/^alloc [a-z]+ ([0-9a-f]+)[0-9a-f]{8} [0-9]+ 6$/\1/p' "$work/reserved.out") # of each run
assert_equal "reservations of the two runs" 2 "${#upper[@]}"
least=0x4000
[ -z "${TSAN:-}" ] || { least=0x10; echo "skipped with the thread sanitizer, whose programs have no addresses that high: that a reserved address looks like no other number"; }
for half in "${upper[@]}"; do
	assert_at_least "upper half of a reserved address, 0x$half" $((least)) $((0x$half))
done
assert_equal "runs that have another upper half" 2 "$(printf '%s\n' "${upper[@]}" | sort -u | wc -l)"

section "places that are of no use"
for bad in /nowhere /dev/null "$image"; do
	printf '#!/bin/bash\n[ -z "${MEDUSA_ORDER:-}" ] || export MEDUSA_ORDER=%s\nexec "$@"\n' "$bad" >"$work/bad"
	chmod +x "$work/bad"
	run bad medusa-capture -o "$work/bad.medusa" -- "$work/bad" "${subject[@]}" seed=7
	assert_exit bad 0
	assert_contains "$work/bad.err" "allocations are not placed: "
	assert_contains "$work/bad.err" "verification: 3 passed, 0 failed, 0 not compared"
done
for call in cuMemCreate:3 cuMemMap:2 cuMemSetAccess:4 cuMemAddressReserve:1; do # the driver serves these requests
	HOSTCUDA_FAULT=$call:OUT_OF_MEMORY run fault medusa-capture -o "$work/fault.medusa" -- "${subject[@]}" seed=7 bound
	assert_contains "$work/fault.err" "capture 2: 3 graphs, 20 allocations" # and the engine is none the wiser
done
finish
