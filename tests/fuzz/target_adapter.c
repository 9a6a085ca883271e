/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: any bytes as a file of a LoRA adapter: what begins with { is adapter_config.json, what begins with GGUF such
 * a file, and all else a safetensors file. What is taken can be multiplied with: ranks in their bounds, finite numbers.
 */
#include <math.h>
#include <string.h>

#include "models/llama/adapters/adapter_gguf.h"
#include "models/llama/adapters/peft.h"
#include "tests/fuzz/fuzz.h"

#define MOST_RANK 8
#define MOST_BYTES (1u << 20)

bool fuzz_accepted;

static const struct llama_shape shape = {
    .hidden_size = 32,
    .intermediate_size = 96,
    .layers = 2,
    .heads = 2,
    .kv_heads = 1,
    .head_dim = 8,
    .vocabulary = 64,
    .rope_interleaved = 1,
};

static void check_values(const uint16_t *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		FUZZ_REQUIRE((values[i] & 0x7f80) != 0x7f80, "element %zu is 0x%04x", i, values[i]);
}

static void check_adapter(const struct lora_adapter *adapter)
{
	int largest = 0;
	FUZZ_REQUIRE(adapter->bytes <= MOST_BYTES, "%zu bytes", adapter->bytes);
	for (int i = 0; i < adapter->layers * LORA_PROJECTIONS; i++) {
		const struct lora_part *part = &adapter->parts[i];
		enum lora_projection projection = (enum lora_projection)(i % LORA_PROJECTIONS);
		if (!part->a)
			continue;
		FUZZ_REQUIRE(part->b && part->rank >= 1 && part->rank <= MOST_RANK, "rank %d", part->rank);
		FUZZ_REQUIRE(isnormal(part->scale), "scale %g", (double)part->scale);
		check_values(part->a, (size_t)part->rank * (size_t)lora_inputs(&shape, projection));
		check_values(part->b, (size_t)part->rank * (size_t)lora_outputs(&shape, projection));
		largest = part->rank > largest ? part->rank : largest;
	}
	FUZZ_REQUIRE(largest && largest == adapter->rank, "rank %d of %d", largest, adapter->rank);
}

static void end(enum md_status status, struct lora_adapter *adapter, const struct md_error *err)
{
	fuzz_accepted = status == MD_OK;
	FUZZ_REQUIRE(status == MD_OK || (err->status == status && *err->message), "refused without saying why");
	if (status != MD_OK)
		return;
	check_adapter(adapter);
	lora_adapter_finish(adapter);
}

static void read_config(const uint8_t *data, size_t size)
{
	static const char *const modules[] = {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"};
	struct peft_config config;
	struct peft_module module;
	struct md_error err = {0};
	enum md_status status = peft_config_parse(&config, (const char *)data, size, &err);
	fuzz_accepted = status == MD_OK;
	FUZZ_REQUIRE(status == MD_OK || *err.message, "refused without saying why");
	if (status != MD_OK)
		return;
	for (int i = 0; i < 2; i++) {
		if (peft_config_find(&config, modules[i], i, &module, &err) == MD_OK)
			FUZZ_REQUIRE(module.rank >= 1 && isnormal(module.alpha), "rank %d, alpha %g", module.rank,
				     module.alpha);
		else
			FUZZ_REQUIRE(*err.message, "a module was refused without saying why");
	}
	peft_config_finish(&config);
}

static void read_gguf(const struct md_file_source *source)
{
	struct gguf gguf;
	struct lora_adapter adapter = {0};
	struct md_error err = {0};
	if (gguf_open_memory(&gguf, source->data, source->size, &err) != MD_OK)
		return;
	end(adapter_gguf_read(&gguf, source, &shape, MOST_RANK, MOST_BYTES, &adapter, &err), &adapter, &err);
	gguf_close(&gguf);
}

static void read_safetensors(const struct md_file_source *source)
{
	static const char text[] =
	    "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": \"all-linear\","
	    " \"rank_pattern\": {\"down_proj\": 3}}";
	struct peft_config config;
	struct lora_adapter adapter = {0};
	struct md_error err = {0};
	FUZZ_REQUIRE(peft_config_parse(&config, text, sizeof(text) - 1, &err) == MD_OK, "%s", err.message);
	end(peft_read(&config, source, &shape, MOST_RANK, MOST_BYTES, &adapter, &err), &adapter, &err);
	peft_config_finish(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* memory of its own, whose end the sanitizer watches */
	uint8_t *copy = malloc(size ? size : 1);
	const struct md_file_source source = {.data = copy, .size = size};
	FUZZ_REQUIRE(copy, "memory");
	memcpy(copy, data, size);
	fuzz_accepted = false;
	if (size && *copy == '{')
		read_config(copy, size);
	else if (size >= 4 && !memcmp(copy, "GGUF", 4))
		read_gguf(&source);
	else
		read_safetensors(&source);
	free(copy);
	return 0;
}
