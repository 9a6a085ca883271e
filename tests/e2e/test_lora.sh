#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LoRA adapters in the reference engine: its logits against double precision, mixed batches, live and restored graphs.
. tests/e2e/lib.sh
tiny=models/recipes/tiny.yaml
python3 bench/gguf_weights.py "$tiny" 5 "$work/tiny.gguf" || exit 1

make_adapter() { # name, arguments...
	python3 tests/llama/make_adapter.py --model "$tiny" --std 0.1 --peft "$work/$1" "${@:2}" || fail 'an adapter to be made' "$*"
}
make_adapter one --rank 1 --alpha 2 --seed 1
make_adapter eight --rank 8 --alpha 8 --seed 2
make_adapter full --rank 64 --alpha 16 --seed 3
make_adapter some --rank 16 --alpha 16 --seed 4 --projections q,v --layers 1
make_adapter feed --rank 5 --alpha 16 --seed 5 --projections up,down --ranks down=3
slots=(--lora-slots 5 --max-lora-rank 64)
prompts=(--prompt a --prompt b --prompt c --prompt d --prompt e --prompt f)
mixed=(--adapter "$work/one" --adapter - --adapter "$work/full" --adapter "$work/some" --adapter "$work/eight" --adapter "$work/feed")

line() { sed -n "s/^\[$2\] //p" "$work/$1.out"; } # run, prompt: its tokens

section 'an engine without slots'
run_live base "${prompts[@]}" --reference
assert_exit base 0
run_live unused "${slots[@]}" "${prompts[@]}" --reference
assert_exit unused 0
assert_same_output base unused

section 'each adapter against double precision, merged and not'
for name in one eight full some feed; do
	run_live "alone.$name" "${slots[@]}" "${prompts[@]}" --adapter "$work/$name" --reference --check
	assert_exit "alone.$name" 0
	assert_contains "$work/alone.$name.out" 'reference: 36 rows of logits'
	assert_contains "$work/alone.$name.out" 'check: 3 of 3 graphs bit-equal to eager'
done
run_live eager "${slots[@]}" "${prompts[@]}" "${mixed[@]}" --reference --no-graphs
assert_exit eager 0

section 'a mixed batch'
run_live mixed "${slots[@]}" "${prompts[@]}" "${mixed[@]}" --reference
assert_exit mixed 0
assert_same_output eager mixed
number=0
for name in one base full some eight feed; do
	number=$((number + 1))
	[ "$name" = base ] && alone=base || alone=alone.$name
	assert_equal "tokens of $name in the batch" "$(line "$alone" $number)" "$(line mixed $number)"
	checks=$((checks + 1))
	[ "$name" = base ] || [ "$(line mixed $number)" != "$(line base $number)" ] || fail "$name to change the tokens" "$(line mixed $number)"
done

section 'both kinds of file, and a model from a file'
for kind in peft gguf; do
	python3 tests/llama/make_adapter.py --model "$work/tiny.gguf" --rank 8 --alpha 8 --seed 2 --std 0.1 "--$kind" "$work/file.$kind"
	run "$kind" "$engine_binary" --model "$work/tiny.gguf" --raw --max-kv-bytes 1000000 --tokens 6 --quiet "${slots[@]}" --prompt abc \
		--lora "mine=$work/file.$kind" --adapter mine --reference --report "$work/$kind.json"
	assert_exit "$kind" 0
done
assert_same_output peft gguf

section 'graphs that were captured before there was an adapter'
engine+=("${slots[@]}")
capture slots
assert_exit slots 0
run_restored restored "$work/slots.medusa" "${prompts[@]}" "${mixed[@]}" --reference --check
assert_exit restored 0
assert_restored restored 3 0
assert_contains "$work/restored.out" 'check: 3 of 3 graphs bit-equal to eager'
assert_equal 'logits of restored graphs' "$(logits mixed)" "$(logits restored)"
run_restored again "$work/slots.medusa" "${prompts[@]}" --adapter "$work/eight" --reference
assert_exit again 0
assert_restored again 3 0
assert_equal "logits of another adapter" "$(logits alone.eight)" "$(logits again)"

section 'an artifact is held to the slots and their rank'
run_live other --lora-slots 4 "${prompts[@]}"
run_restored other.slots "$work/slots.medusa" --lora-slots 4 "${prompts[@]}"
assert_refused_whole other other.slots 'fact "lora": artifact has 5 slots of rank 64, this engine 4 slots of rank 64'
run_live none --lora-slots 0 "${prompts[@]}"
run_restored none.slots "$work/slots.medusa" --lora-slots 0 "${prompts[@]}"
assert_refused none none.slots 'fact "lora": artifact has 5 slots of rank 64'

section 'refusals'
run few "${engine[@]}" --lora-slots 1 "${prompts[@]}" "${mixed[@]}"
assert_exit few 2
assert_contains "$work/few.err" "all of --lora-slots 1 are used"
run rank "${engine[@]}" --max-lora-rank 8 --prompt a --adapter "$work/full"
assert_exit rank 1
assert_contains "$work/rank.err" 'rank'
run count "${engine[@]}" "${prompts[@]}" --adapter "$work/one" --adapter "$work/full"
assert_exit count 2
assert_contains "$work/count.err" '--adapter: 2 of them for 6 prompts'
run absent "${engine[@]}" --prompt a --adapter "$work/nowhere"
assert_exit absent 1
assert_contains "$work/absent.err" "$work/nowhere"
run no_slots "${engine[@]}" --lora-slots 0 --prompt a --adapter "$work/one"
assert_exit no_slots 2
assert_contains "$work/no_slots.err" '--adapter: an adapter needs a place, --lora-slots N'
finish
