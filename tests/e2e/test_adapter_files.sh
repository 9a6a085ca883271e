#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LoRA adapters' files as the engine reads them: both kinds of file are the same adapter, and a bad one ends with its reason.
. tests/e2e/lib.sh
tiny=models/recipes/tiny.yaml
python3 bench/gguf_weights.py "$tiny" 5 "$work/tiny.gguf" || exit 1
sed 's/^rope_interleaved: false/rope_interleaved: true/' "$tiny" >"$work/interleaved.yaml"

make_adapter() { python3 tests/llama/make_adapter.py --rank 8 --alpha 16 --seed 3 "$@" || fail 'an adapter to be made' "$*"; }
check_adapter() { run "$1" "$engine_binary" "${@:3}" --check-adapter "$2"; } # name, adapter, model
content() { sed -n 's/.*, content \([0-9a-f]*\)$/\1/p' "$work/$1.out"; }

section 'what is said of an adapter'
make_adapter --model "$tiny" --projections q,down --ranks down=3 --layers 1 --peft "$work/some"
check_adapter some "$work/some" --recipe "$tiny"
assert_exit some 0
assert_contains "$work/some.out" 'query   1 of 2 layers (1 to 1), rank 8, scale 2'
assert_contains "$work/some.out" 'down    1 of 2 layers (1 to 1), rank 3, scale 5.33333'
assert_contains "$work/some.out" 'rank 8, '
assert_equal 'projections and the sum' 3 "$(wc -l <"$work/some.out")"
make_adapter --model "$tiny" --rslora --alphas q=1,v=4 --peft "$work/scaled"
check_adapter scaled "$work/scaled" --recipe "$tiny"
assert_contains "$work/scaled.out" 'query   2 of 2 layers (0 to 1), rank 8, scale 0.353553'
assert_contains "$work/scaled.out" 'value   2 of 2 layers (0 to 1), rank 8, scale 1.41421'
assert_contains "$work/scaled.out" 'key     2 of 2 layers (0 to 1), rank 8, scale 5.65685'

section 'both kinds of file'
for type in f32 f16 bf16; do
	for model in "--recipe $tiny" "--recipe $work/interleaved.yaml" "--model $work/tiny.gguf"; do
		read -r option path <<<"$model"
		make_adapter --model "$path" --ranks k=2,down=5 --type "$type" --peft "$work/$type"
		make_adapter --model "$path" --ranks k=2,down=5 --type "$type" --gguf "$work/$type.gguf"
		check_adapter peft "$work/$type" "$option" "$path"
		assert_exit peft 0
		check_adapter gguf "$work/$type.gguf" "$option" "$path"
		assert_exit gguf 0
		assert_same_file "$work/peft.out" "$work/gguf.out"
		content peft >>"$work/contents.$type"
	done
	# The order of rows is the model's: that of GGUF files is that of an interleaved recipe, and no other.
	assert_equal "orders of rows, $type" 2 "$(sort -u "$work/contents.$type" | wc -l)"
	assert_equal "interleaved, $type" "$(sed -n 2p "$work/contents.$type")" "$(sed -n 3p "$work/contents.$type")"
done
assert_equal 'contents of three types' 6 "$(cat "$work"/contents.* | sort -u | wc -l)"

section 'no memory, and files that fail'
for adapter in "$work/f32" "$work/f32.gguf"; do
	check_adapter whole "$adapter" --recipe "$tiny"
	for kind in memory file; do
		failed=0
		for n in $(seq 200); do
			run inject env LD_PRELOAD="$MEDUSA_BUILD/tests/faults/inject.so" INJECT=$kind:$n INJECT_FROM=llama-engine,libjansson.so.4 INJECT_PROGRAM=llama-engine \
				"$engine_binary" --recipe "$tiny" --check-adapter "$adapter"
			grep -q '^inject: call' "$work/inject.err" || break
			[ $code = 0 ] || failed=$((failed + 1))
			checks=$((checks + 1))
			case $code in
			0) cmp -s "$work/whole.out" "$work/inject.out" || fail 'the same adapter' "another one ($kind $n)" ;;
			1) grep -q '^llama-engine: ' "$work/inject.err" || fail 'a reason' "none ($kind $n)" ;;
			*) fail 'the adapter, or a reason' "exit code $code ($kind $n); $(excerpt "$work/inject.err")" ;;
			esac
		done
		assert_at_least "runs that were refused, $kind" 28 $failed
	done
done

section 'no device is needed'
LD_LIBRARY_PATH='' check_adapter bare "$work/f32" --recipe "$tiny"
assert_exit bare 0

section 'refusals'
check_adapter absent "$work/nowhere" --recipe "$tiny"
assert_exit absent 1
assert_contains "$work/absent.err" "llama-engine: $work/nowhere: No such file or directory"
check_adapter other "$work/f32" --recipe models/recipes/smollm2-135m.yaml
assert_exit other 1
assert_contains "$work/other.err" "$work/f32/adapter_model.safetensors: tensor \"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\" has 8 x 64 elements"
check_adapter model "$work/tiny.gguf" --model "$work/tiny.gguf"
assert_exit model 1
assert_contains "$work/model.err" "$work/tiny.gguf: metadata \"general.type\" is missing"
sed -i 's/"use_dora": false/"use_dora": true/' "$work/f16/adapter_config.json"
check_adapter dora "$work/f16" --recipe "$tiny"
assert_exit dora 1
assert_contains "$work/dora.err" "$work/f16/adapter_config.json: use_dora is set: "
sed -i 's/"use_dora": true/"use_dora": false/; s/"r": [0-9]*/"r": 0/' "$work/f16/adapter_config.json"
check_adapter rank "$work/f16" --recipe "$tiny"
assert_exit rank 1
assert_contains "$work/rank.err" "$work/f16/adapter_config.json: r: an integer of at least 1 is wanted"
rm "$work/f16/adapter_config.json"
mkfifo "$work/f16/adapter_config.json"
check_adapter pipe "$work/f16" --recipe "$tiny"
assert_exit pipe 1
assert_contains "$work/pipe.err" "$work/f16/adapter_config.json: not a regular file but a pipe"
truncate -s -1 "$work/f32.gguf"
check_adapter short "$work/f32.gguf" --recipe "$tiny"
assert_exit short 1
assert_contains "$work/short.err" "$work/f32.gguf: tensor \"blk.1.ffn_down.weight.lora_b\" at offset "
code=0
"$engine_binary" --recipe "$tiny" --check-adapter "$work/some" >/dev/full 2>"$work/full.err" || code=$?
assert_exit full 1
assert_contains "$work/full.err" "can't be written to stdout"
check_adapter both "$work/f32" --recipe "$tiny" --prompt x
assert_exit both 2
assert_contains "$work/both.err" '--check-adapter reads an adapter alone'
finish
