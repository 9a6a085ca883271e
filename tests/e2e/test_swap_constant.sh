#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What an engine has declared constant (medusa_bind), as medusa-swap knows it: whole allocations, and nothing that is in doubt.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh
mb=1048576

until_constant() { # what, bytes
	for _ in $(seq 1200); do
		[ "$(state constant)" = "$2" ] && break || sleep 0.05
	done
	assert_equal "constant: $1" "$2" "$(state constant)"
}

bound() { asked bind "$@"; assert_equal "bind $*" bound "$answered"; } # name, role (1: constant, 2: state), first, bytes

begin constant -- 1

section 'allocations of which each byte is declared'
asked alloc 8
until_constant 'nothing was declared' 0
bound first 1 0 $((4 * mb))
asked alloc 5 # 5 MiB in memory of 6
bound odd 1 0 $((5 * mb))
until_constant 'all of one, and half of the other' $((6 * mb))
done_swap out out
assert_equal 'constant: while it is out' $((6 * mb)) "$(state constant)"
done_swap in in --verify
assert_equal 'constant: when it is in again' $((6 * mb)) "$(state constant)"

section 'what is written, or was freed, is not constant, whoever says it first'
bound counter 2 $((2 * mb)) 4
until_constant 'one name says that 4 bytes are written' 0
bound odd 1 0 $((5 * mb))
bound whole 1 0 $((5 * mb))
bound counter 2 $((3 * mb)) 4
asked alloc 8
bound state 2 8388604 4
bound weights 1 0 $((8 * mb))
asked alloc 8
bound rest 1 $((4 * mb)) $((4 * mb))
bound start 1 0 $((4 * mb))
until_constant 'the last one alone, of two names' $((8 * mb))
bound start 1 0 4096
until_constant 'one of the names is elsewhere now' 0
bound start 1 0 $((4 * mb))
until_constant 'and is back' $((8 * mb))
asked renew
until_constant 'what was freed, and allocated anew' 0
bound start 1 0 $((8 * mb))
until_constant 'and is bound again' $((8 * mb))
asked share # another process may have its state, which was never declared
until_constant 'memory of others changes nothing' $((8 * mb))

section 'memory of other kinds'
asked managed 4
bound managed 1 0 $((4 * mb))
until_constant 'managed memory is the driver'\''s' $((8 * mb))
close_engine
finish
