/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a GGUF file, with all that the engine reads of one: shape, tokenizer, tensors. */
#include "models/llama/gguf.c"
#include "models/llama/recipe.c"
#include "models/llama/tokenizer.c"
#include "models/llama/unicode.c"

#include "tests/fuzz/fuzz.h"

bool fuzz_accepted;

/* Each byte that the directory says is there is touched, as loading would. */
static void read_values(const struct gguf *gguf, const uint8_t *data)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < gguf->value_count; i++) {
		const struct gguf_value *value = &gguf->values[i];
		struct gguf_string text;
		for (size_t cursor = 0; gguf_next_string(value, &cursor, &text);)
			sum += text.size ? (uint8_t)text.data[text.size - 1] : 0;
		for (uint64_t k = 0; value->type == GGUF_ARRAY && k < value->count; k++)
			sum += (uint64_t)gguf_array_integer(value, k);
	}
	for (size_t i = 0; i < gguf->tensor_count; i++) {
		const struct gguf_tensor *tensor = &gguf->tensors[i];
		uint16_t out[BLOCK];
		uint64_t last = (tensor->elements - 1) / BLOCK * BLOCK;
		uint64_t offset, first = tensor->elements < BLOCK ? tensor->elements : BLOCK;
		size_t bytes;
		gguf_locate(tensor, 0, first, &offset, &bytes);
		gguf_to_bf16(tensor->type, data + offset, first, out);
		gguf_locate(tensor, last, tensor->elements - last, &offset, &bytes);
		gguf_to_bf16(tensor->type, data + offset, tensor->elements - last, out);
		sum += out[0];
	}
	fuzz_accepted = sum != UINT64_MAX;
}

static void read_tokenizer(const struct gguf *gguf)
{
	static const char text[] = "The 12 quick <|im_start|>foxes\n\t\xc3\xa9\xff ";
	struct tokenizer tokenizer;
	struct token_list list = {0};
	struct md_error err = {0};
	if (tokenizer_init(&tokenizer, gguf, &err) != MD_OK) {
		FUZZ_REQUIRE(*err.message, "the tokenizer was refused without saying why");
		return;
	}
	if (tokenizer_encode(&tokenizer, text, sizeof(text) - 1, true, &list, &err) == MD_OK)
		free(tokenizer_decode(&tokenizer, list.tokens, list.count));
	token_list_finish(&list);
	if (tokenizer_encode_chat(&tokenizer, text, &list, &err) == MD_OK && list.count)
		tokenizer_is_end(&tokenizer, list.tokens[0]);
	token_list_finish(&list);
	tokenizer_finish(&tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gguf gguf;
	struct llama_shape shape;
	struct md_error err = {0};
	fuzz_accepted = false;
	if (gguf_open_memory(&gguf, data, size, &err) != MD_OK) {
		FUZZ_REQUIRE(err.status && *err.message, "refused without saying why");
		return 0;
	}
	read_values(&gguf, data);
	recipe_from_gguf(&gguf, &shape, &err);
	read_tokenizer(&gguf);
	gguf_close(&gguf);
	return 0;
}
