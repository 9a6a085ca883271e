#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-swap in --gpu-peers: blocks that an engine on another device has come from its memory, while it runs: it copies them
# itself where it sees both devices, else the carrier reads them. Whatever both do meanwhile, the memory holds what it held.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh
export HOSTCUDA_SHARED=$work/devices HOSTCUDA_CONTEXT=16M HOSTCUDA_MEM=1G HOSTCUDA_DEVICES=3
export HOSTCUDA_H2D_GBPS=${LINK:-0.2} # bytes a nanosecond; all of the memory takes about 0.2 s over one link

# ---- an engine on device 1 that lends ---------------------------------------------------------------------------------
lend() { # options of run...
	CUDA_VISIBLE_DEVICES=${LENDS_ON:-1,0,2} converse lender timeout --kill-after=5 "$engine_limit" medusa-swap run --name lender --pool-bytes 256M "$@" -- \
		"${subject[@]}" 1 2>"$work/lender.err"
	told
	ask_lender "alloc $megabytes"
	ask_lender sum
	of_lender=$lender_said
	for _ in $(seq 1200); do [ "$(of lender swappable)" -gt 8000000 ] 2>/dev/null && break; sleep 0.05; done
	turn lender
}
told() { lender_said=; read -r -t "$patience" lender_said <&"$lender_out"; }
ask_lender() { printf '%s\n' "$*" >&"$lender_in" && told; }
turn() { # out and in: what has come in is known
	run turned medusa-swap out "$1"
	assert_exit turned 0
	run turned medusa-swap in "$1"
	assert_exit turned 0
}
of() { medusa-swap status --json "$1" 2>/dev/null | sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\).*/\1/p"; }
lender_is_right() { ask_lender sum; assert_equal 'what the memory of the lender holds' "$of_lender" "$lender_said"; }
end_lender() {
	exec {lender_in}>&-
	told
	assert_equal 'what the threads of the lender found' 'wrong 0' "$lender_said"
	await_end "$lender_shell" lender
	wait "$lender_shell" 2>/dev/null
	exec {lender_out}<&-
}

# ---- an engine on device 0 that comes in ------------------------------------------------------------------------------
come() { # options of in...
	before=($(went 0 0) $(went 2 0))
	done_swap in in --gpu-peers "$@"
	assert_sum
	after=($(went 0 0) $(went 2 0))
	by_peers=$(number in copied_by_peers)
}
come_by_peers() { # until something has: on a machine with much to do the lender may answer too late
	for _ in $(seq 24); do
		[ "$(state state)" = out ] || done_swap out out
		come "$@"
		[ "$by_peers" -gt 0 ] && return
	done
	fail 'something to come from the lender' "$(grep -E 'peers|neighbours' "$work/in.json")"
}
comer() { CUDA_VISIBLE_DEVICES=${COMES_ON:-0} begin_large "$@"; }
restart() { close_engine; comer "$@"; }
until_differed() {
	for _ in $(seq 24); do
		[ "$(state state)" = out ] || done_swap out out
		come
		[ "$(number in peers_differed)" -gt 0 ] && return
	done
	fail 'something that differs' "$(grep -E 'peers|neighbours' "$work/in.json")"
}
come_because() { # why nothing comes; where there is much to do, the carrier is not ready in time
	for _ in $(seq 24); do
		[ "$(state state)" = out ] || done_swap out out
		come
		assert_equal 'what came from the lender' 0 "$by_peers"
		grep -q "$1" "$work/in.json" && break
	done
	assert_contains "$work/in.json" "$1"
	medusa-swap status --json all >"$work/said"
	assert_contains "$work/said" "$1"
}
carrier_of() { pgrep -f 'medusa-swap carrier-of-run' -P "$1"; }
until_carrier_again() { done_swap out out && done_swap in in --gpu-peers && until_carrier 2; }
until_went() { # bus, device: bytes go there, or who was started last has ended
	local was
	was=$(went "$1" "$2")
	while kill -0 $! 2>/dev/null && [ "$(went "$1" "$2")" = "$was" ]; do :; done
}
counted() { # files of all three (fd), or their threads (task)
	local pid
	for pid in $(of lender engine_pid) $(engine_pid) $(carrier_of "$(state pid)"); do
		ls "/proc/$pid/$1" | wc -l
	done
}
sum_of() { local sum=0 one; for one in $1; do sum=$((sum + one)); done; echo $sum; }
on_one() { # bytes that all processes have on device 1
	on_device_at 1
}

times_are_in_order() { # the offer, the question, what came first and last
	python3 -c '
import re, sys
told = re.findall(r"from other engines, ms: carrier ready ([0-9.]+), offered ([0-9.]+), asked for ([0-9.]+), first came ([0-9.]+), last came ([0-9.]+)", open(sys.argv[1], errors="replace").read())
came = [[float(time) for time in times] for times in told if float(times[4])]
assert came and all(times[1] <= times[2] <= times[3] <= times[4] for times in came), told
' "$work/all.err" || fail 'times that are in order' "$(grep 'from other engines' "$work/all.err")"
}

counts() { # of what came from the lender: parts that were taken over, copies, and times of both
	local what
	for what in own_parts lent_parts copies ns_own_import ns_own_map ns_own_access ns_lent_map ns_lent_access ns_issue ns_came_last "$@"; do
		[ "$(number in "peers_$what")" -gt 0 ] || fail "peers_$what" "$(grep peers_ "$work/in.json")"
	done
}

section 'what another engine has comes from there'
lend --gpu-peers
MEDUSA_LOG=debug comer all --gpu-peers -- 0
assert_equal 'both hold' "$of_lender" "$wanted"
assert_equal 'whether the lender lends' true "$(of lender lends)"
until_carrier 2
most=0 all=$(state swappable)
for round in $(seq 72); do
	[ "$round" -le "${PEER_ROUNDS:-9}" ] || [ "$most" -lt $((all / 3)) ] || break # where there is much to do, the carrier begins late
	come_by_peers $([ $((round % 4)) = 0 ] && echo --verify) $([ $((round % 3)) = 0 ] && echo --gpu-neighbours)
	by_neighbours=$(number in copied_by_neighbours)
	assert_equal "round $round: what device 0 got from others" $((by_peers + by_neighbours)) $((after[1] - before[1]))
	assert_equal "round $round: what came over the link" $(($(number in copied) - by_peers - by_neighbours)) $((after[0] - before[0]))
	assert_equal "round $round: what differed" 0 "$(number in peers_differed)"
	assert_contains "$work/in.json" '"peers_because": ""'
	counts
	assert_equal "round $round: what the lender has copied itself" "$by_peers" "$(number in peers_pushed)"
	assert_contains "$work/in.json" '"peers_carried_because": ""'
	[ "$by_peers" -gt "$most" ] && most=$by_peers
	if [ "$round" = 3 ]; then files=$(counted fd) threads=$(counted task); fi
done
assert_at_least 'the most that came from the lender' $((all / 3)) "$most"
assert_equal 'descriptors of the lender, the engine and the carrier' "$files" "$(counted fd)"
assert_at_most 'their threads' $(($(sum_of "$threads") + 12)) "$(sum_of "$(counted task)")" # hostcuda has one for each stream that was used
lender_is_right
times_are_in_order
turn lender
done_swap in in
assert_equal 'what came from the lender without being asked for' 0 "$(number in copied_by_peers)"
for _ in $(seq 24); do
	run told_in medusa-swap out all
	run told_in medusa-swap in all --gpu-peers
	grep -q 'came from engines' "$work/told_in.out" && break
done
assert_contains "$work/told_in.out" 'MB of them came from engines on other GPUs'
swap both in --gpu-peers --overlap
assert_exit both 2
assert_contains "$work/both.err" '--gpu-peers and --overlap: choose one'

section 'what the lender has written is not taken'
ask_lender 'write 77'
ask_lender sum
of_lender=$lender_said
until_differed # its own answer is of before
assert_lacks "$work/in.json" '"peers_differed": 0,'
lender_is_right
differed=$(number in peers_differed)
for _ in $(seq 24); do # what differed is not offered again; where there is much to do, the rest of it comes later
	done_swap out out
	come
	again=$(number in peers_differed)
	differed=$((differed + again))
	[ "$again" = 0 ] && break
done
assert_equal 'what differed in the end' 0 "$again"
assert_at_most 'all that differed, each block once' "$all" "$differed"
for round in 1 2; do
	done_swap out out
	(for _ in $(seq 12); do printf 'write %s\nwrite 5\n' "$RANDOM"; done >&"$lender_in") &
	come
	wait $!
	for _ in $(seq 24); do told; done
	turn lender # both hold the same again
done
ask_lender 'write 5'
ask_lender sum
of_lender=$lender_said
assert_equal 'both hold' "$of_lender" "$wanted"

hurt() { # rounds
	local round
	run gone medusa-swap out lender
	away=$(on_one)
	run back medusa-swap in lender
	for round in $(seq "$1"); do
		turn lender
		done_swap out out
		printf 'renew\n' >&"$lender_in"
		come
		told
		lender_is_right
		turn lender
		done_swap out out
		(sleep "0.0$((RANDOM % 9))"; medusa-swap out lender >"$work/gone.out" 2>&1; echo $? >"$work/gone.code") &
		come
		wait $!
		assert_equal 'what out of the lender ends with' 0 "$(cat "$work/gone.code")"
		assert_equal 'bytes of the lender on device 1' "$away" "$(on_one)"
		run back medusa-swap in lender
		lender_is_right
	done
}
section 'the lender frees its memory, and goes out, at any moment'
hurt "${PEER_HURTS:-3}"
end_lender

section 'a lender that does not see the device is read by the carrier'
LENDS_ON=1 lend --gpu-peers
for round in 1 2; do
	come_by_peers
	assert_equal "round $round: what the lender has copied itself" 0 "$(number in peers_pushed)"
	assert_contains "$work/in.json" '"peers_carried_because": "cuMemImportFromShareableHandle'
	assert_equal "round $round: what differed" 0 "$(number in peers_differed)"
	counts lent_groups ns_lent_import
done
assert_contains "$work/in.json" '"peers_because": ""'
hurt 1

section 'a carrier that keeps the memory holds up out, and nothing else'
export HOSTCUDA_NVLINK=0.05
restart all --gpu-peers -- 0
turn lender
until_carrier 2
for round in $(seq 24); do
	done_swap out out
	victim=$(carrier_of "$(state pid)") manager=$(state pid)
	swap in in --gpu-peers &
	until_went 2 0 # it copies
	kill -STOP "$manager" "$victim"
	run kept medusa-swap out lender --deadline 1
	keeps=$(grep -c 'does not give it back' "$work/kept.err")
	[ "$keeps" = 0 ] || lender_is_right
	kill -CONT "$victim" "$manager"
	wait $!
	assert_contains "$work/in.json" '"ok": true'
	assert_sum
	[ "$keeps" = 0 ] || break
	run back medusa-swap in lender # its part had come, so it went out
	lender_is_right
done
assert_contains "$work/kept.err" 'memory is lent to another engine (--gpu-peers), and the carrier of medusa-swap run, process'
assert_equal 'the lender is' in "$(of lender state)"
run out medusa-swap out lender
assert_exit out 0
run back medusa-swap in lender
unset HOSTCUDA_NVLINK
end_lender

export HOSTCUDA_NVLINK=0.05
section 'copies that the lender makes do not hold up its out'
lend --gpu-peers
restart all --gpu-peers -- 0
run gone medusa-swap out lender
away=$(on_one)
run back medusa-swap in lender
for stopped in '' engine; do
	for round in $(seq 24); do
		done_swap out out
		swap in in --gpu-peers &
		until_went 2 0
		[ -z "$stopped" ] || kill -STOP "$(engine_pid)"
		began=$EPOCHREALTIME
		run gone medusa-swap out lender
		took=$((${EPOCHREALTIME/[.,]/} - ${began/[.,]/}))
		[ -z "$stopped" ] || kill -CONT "$(engine_pid)"
		assert_exit gone 0
		assert_at_most 'the time in us that it takes' 4000000 "$took"
		assert_equal 'bytes of the lender on device 1' "$away" "$(on_one)"
		wait $!
		assert_contains "$work/in.json" '"ok": true'
		assert_sum
		run back medusa-swap in lender
		lender_is_right
		[ "$(number in copied_by_peers)" = 0 ] || break
	done
	assert_at_least 'what came before that' 1 "$(number in copied_by_peers)"
done
unset HOSTCUDA_NVLINK

section 'two engines come in from one, and both lend to one another'
COMES_ON=0,1 restart all --gpu-peers -- 0
turn all
until_carrier 2
third() { CUDA_VISIBLE_DEVICES=2 converse third timeout --kill-after=5 "$engine_limit" medusa-swap run --name third --pool-bytes 256M --gpu-peers -- "${subject[@]}" 1 2>"$work/third.err"; }
third
read -r -t "$patience" third_said <&"$third_out"
printf 'alloc %s\nsum\n' "$megabytes" >&"$third_in"
read -r -t "$patience" third_said <&"$third_out" && read -r -t "$patience" third_said <&"$third_out"
of_third=$third_said
for _ in $(seq 1200); do [ "$(of third swappable)" -gt 8000000 ] 2>/dev/null && break; sleep 0.05; done
both=0
for round in $(seq 24); do
	run away medusa-swap out third
	done_swap out out
	medusa-swap in --json third --gpu-peers >"$work/third.json" 2>&1 &
	come
	wait $!
	assert_contains "$work/third.json" '"ok": true'
	printf 'sum\n' >&"$third_in"
	read -r -t "$patience" third_said <&"$third_out"
	assert_equal 'what the third one holds' "$of_third" "$third_said"
	lender_is_right
	[ "$by_peers" -gt 0 ] && [ "$(number third peers_pushed)" -gt 0 ] && both=1 && break
done
assert_equal 'whether both have got something at a time' 1 "$both"
exec {third_in}>&-
await_end "$third_shell" third
wait "$third_shell" 2>/dev/null
exec {third_out}<&-
for round in $(seq 24); do
	come_by_peers
	run away medusa-swap out lender
	run back medusa-swap in --json lender --gpu-peers
	assert_exit back 0
	lender_is_right
	cp "$work/back.out" "$work/back.json"
	[ "$(number back peers_pushed)" -gt 0 ] && break
done
assert_at_least 'what the lender has got from its borrower' 1 "$(number back peers_pushed)"
close_engine
end_lender

section 'whoever takes part is killed at any moment'
for round in $(seq "${PEER_DEATHS:-4}"); do
	export HOSTCUDA_NVLINK=0.2
	[ -n "$(of lender pid)" ] || lend --gpu-peers
	[ -n "$(of all pid)" ] || { comer all --gpu-peers -- 0; until_carrier 2; }
	[ "$(state state)" = out ] || done_swap out out
	case $((round % 4)) in
	0) victim=$(of lender engine_pid) ;;
	1) victim=$(carrier_of "$(state pid)") ;;
	2) victim=$(engine_pid) ;;
	3) victim=$(of lender pid) orphan=$(of lender engine_pid) ;;
	esac
	(sleep "0.$(printf %02d $((RANDOM % 25)))"; kill -KILL "$victim") 2>/dev/null &
	swap in in --gpu-peers
	wait $!
	case $((round % 4)) in
	0)
		assert_contains "$work/in.json" '"ok": true'
		assert_sum
		await_end "$lender_shell" lender
		wait "$lender_shell" 2>/dev/null
		exec {lender_in}>&- {lender_out}<&-
		;;
	1)
		assert_contains "$work/in.json" '"ok": true'
		assert_sum
		lender_is_right
		until_carrier_again
		;;
	2)
		end_engine 137
		lender_is_right
		turn lender
		;;
	3)
		assert_contains "$work/in.json" '"ok": true'
		assert_sum
		lender_is_right # without medusa-swap run
		exec {lender_in}>&-
		for _ in $(seq 1200); do lives "$orphan" || break; sleep 0.05; done
		wait "$lender_shell" 2>/dev/null
		exec {lender_out}<&-
		;;
	esac
done
unset HOSTCUDA_NVLINK
[ -z "$(of all pid)" ] || close_engine
[ -z "$(of lender pid)" ] || end_lender

section 'the lender is stopped'
lend --gpu-peers
comer all --gpu-peers -- 0
until_carrier 2
for delay in 0 0.02 0.05; do
	done_swap out out
	victim=$(of lender engine_pid)
	(sleep "$delay"; kill -STOP "$victim") &
	come
	wait $!
	kill -CONT "$victim"
	lender_is_right
	done_swap out out
	victim=$(of lender pid)
	kill -STOP "$victim"
	come_because 'has offered its memory in time'
	kill -CONT "$victim"
done
close_engine
end_lender

section 'each call of the driver in the carrier fails once'
megabytes=8
LENDS_ON=1 lend --gpu-peers
for call in ${PEER_CALLS:-$(seq 18 38 132)}; do # many are questions whether a copy has ended
	HOSTCUDA_FAULT="@medusa-swap/swap-carrier:$call:UNKNOWN" comer "each$call" --gpu-peers -- 0
	done_swap out out
	come
	done_swap out out
	done_swap in in
	assert_sum
	close_engine
done
lender_is_right

section 'each call of the driver in the thread that maps fails once'
for call in ${PEER_MAPS:-$(seq 1 3 16)}; do
	HOSTCUDA_FAULT="@medusa-swap/swap-mapper:$call:UNKNOWN" comer "map$call" --gpu-peers -- 0
	until_carrier 2
	done_swap out out
	come
	done_swap out out
	done_swap in in --gpu-peers
	assert_sum
	close_engine
done
lender_is_right
end_lender

section 'each call of the driver for lending fails once'
for fault in 1/cuMemExportToShareableHandle:1:UNKNOWN 1/cuMemExportToShareableHandle:*:NOT_SUPPORTED 1,0/cuDeviceGetUuid_v2:*:UNKNOWN \
	1,0/cuMemImportFromShareableHandle:1:UNKNOWN 1,0/cuMemcpyDtoDAsync_v2:2:UNKNOWN; do
	LENDS_ON=${fault%%/*} HOSTCUDA_FAULT=${fault#*/} lend --gpu-peers
	comer all --gpu-peers -- 0
	until_carrier 2
	for round in 1 2 3; do
		done_swap out out
		come
	done
	lender_is_right
	close_engine
	end_lender
done

section 'memory of the lender is mapped while other memory of it is copied'
export HOSTCUDA_NVLINK=0.05
more() { # each other bytes
	local i
	for i in $(seq 6); do "$1" 'alloc 6' && "$1" "write ${i}00"; done
	"$1" sum
}
LENDS_ON=1 lend --gpu-peers
more ask_lender
of_lender=$lender_said
turn lender
HOSTCUDA_FAULT=cuMemSetAccess/swap-mapper:*:SLOW comer slow --gpu-peers -- 0
more asked
wanted=$answered
assert_equal 'both hold' "$of_lender" "$wanted"
until_carrier 2
for _ in $(seq 24); do # where there is much to do, little comes
	come_by_peers --verify
	mapping=$(($(number in peers_ns_lent_import) + $(number in peers_ns_lent_map) + $(number in peers_ns_lent_access)))
	beside=$(number in peers_ns_lent_beside) groups=$(number in peers_lent_groups)
	assert_at_least 'time of a slow driver' $((groups * 20000000)) "$(number in peers_ns_lent_access)"
	assert_at_most 'time beside copies' "$mapping" "$beside"
	assert_at_most 'time in which all waited for mapping' "$(number in peers_ns_idle)" "$(number in peers_ns_unmapped)"
	[ "$groups" -lt 3 ] || [ "$beside" -lt $((mapping / 2)) ] || break
done
assert_at_least 'groups of parts' 3 "$groups"
assert_at_least 'of the time of mapping, what is beside copies' $((mapping / 2)) "$beside"
lender_is_right
close_engine
end_lender
unset HOSTCUDA_NVLINK

section 'where nothing can come from there, the pool has it'
none() { # why
	until_carrier "${2:-2}"
	come_because "$1"
	close_engine
}
lend # without the option
comer all --gpu-peers -- 0
none 'has offered its memory in time'
end_lender
LENDS_ON=0 lend --gpu-peers # the same device
comer all --gpu-peers -- 0
none 'has offered its memory in time'
end_lender
lend --gpu-peers
run gone medusa-swap out lender
comer all --gpu-peers -- 0
none 'has offered its memory in time'
run back medusa-swap in lender
end_lender
HOSTCUDA_NVLINK=none lend --gpu-peers
HOSTCUDA_NVLINK=none comer all --gpu-peers -- 0
none 'cannot access its memory' 0
ask_lender 'write 99'
turn lender
comer all --gpu-peers -- 0
until_carrier 2
done_swap out out
come
close_engine
end_lender
finish
