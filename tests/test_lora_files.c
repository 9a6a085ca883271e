/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters' files that are refused, each with the message that it must give. */
#include "tests/adapter_files.h"

#define A QUERY ".lora_A.weight"
#define B QUERY ".lora_B.weight"

/* ---- adapter_config.json ------------------------------------------------------------------------------------------ */

static const struct {
	const char *config, *words;
	enum md_status status;
} configs[] = {
    {"", "adapter_config.json: line 1, byte 0: ", MD_ERR_CORRUPT},
    {"[]", "no JSON object", MD_ERR_CORRUPT},
    {"{\"r\": 1, \"r\": 2}", "duplicate object key", MD_ERR_CORRUPT},
    {"{\n\n\"r\": 99999999999999999999}", "line 3, byte 28: too big integer", MD_ERR_CORRUPT},
    {CONFIG_OF() "{}", "end of file expected", MD_ERR_CORRUPT},
    {"{}", "peft_type is not \"LORA\"", MD_ERR_UNSUPPORTED},
    {"{\"peft_type\": \"LOHA\"}", "peft_type is not \"LORA\"", MD_ERR_UNSUPPORTED},
    {"{\"peft_type\": \"LORA\", \"lora_alpha\": 4, \"target_modules\": [\"q_proj\"]}", "r: an integer of at least 1",
     MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 4, \"target_modules\": [\"q_proj\"]}",
     "r: an integer of at least 1", MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 2.0, \"lora_alpha\": 4, \"target_modules\": [\"q_proj\"]}",
     "r: an integer of at least 1", MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 0, \"target_modules\": [\"q_proj\"]}",
     "lora_alpha: a number other than 0", MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": \"4\", \"target_modules\": [\"q_proj\"]}",
     "lora_alpha: a number other than 0", MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4}", "target_modules: a list of names, or a text",
     MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [1]}",
     "target_modules: a list of names, or a text", MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q_proj\", \"\"]}",
     "target_modules: a list of names, or a text", MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": \"\"}",
     "target_modules: a list of names, or a text", MD_ERR_INVALID},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1e300, \"target_modules\": [\"q_proj\"]}",
     "model.layers.0.self_attn.q_proj: a scale of inf", MD_ERR_CORRUPT},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1e-300, \"target_modules\": [\"q_proj\"]}",
     "model.layers.0.self_attn.q_proj: a scale of 0", MD_ERR_CORRUPT},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"v_proj\", \"proj\"]}",
     "target_modules leaves model.layers.0.self_attn.q_proj out", MD_ERR_MISMATCH},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q_proj\"], "
     "\"layers_to_transform\": 1}",
     "layers_to_transform leaves model.layers.0.self_attn.q_proj out", MD_ERR_MISMATCH},
    {"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q_proj\"], "
     "\"layers_to_transform\": [1, 3]}",
     "layers_to_transform leaves model.layers.0.self_attn.q_proj out", MD_ERR_MISMATCH},
    {CONFIG_OF(", \"layers_to_transform\": [0]"), "layers_to_transform: a list of target_modules beside it",
     MD_ERR_INVALID},
    {CONFIG_OF(", \"layers_to_transform\": [-1]"), "layers_to_transform: a list of numbers from 0", MD_ERR_INVALID},
    {CONFIG_OF(", \"layers_pattern\": [\"blocks\"]"), "layers_pattern: \"layers\" is wanted", MD_ERR_INVALID},
    {CONFIG_OF(", \"exclude_modules\": [\"q_proj\"]"), "exclude_modules leaves model.layers.0.self_attn.q_proj out",
     MD_ERR_MISMATCH},
    {CONFIG_OF(", \"exclude_modules\": 3"), "exclude_modules: a list of names, or a text", MD_ERR_INVALID},
    {CONFIG_OF(", \"rank_pattern\": {\"q_proj\": 3}"),
     "model.layers.0.self_attn.q_proj has rank 2, adapter_config.json says 3", MD_ERR_MISMATCH},
    {CONFIG_OF(", \"rank_pattern\": {\"q_proj\": 0}"), "rank_pattern: the value of \"q_proj\" is no usable number",
     MD_ERR_INVALID},
    {CONFIG_OF(", \"rank_pattern\": [1]"), "rank_pattern: an object of names and numbers", MD_ERR_INVALID},
    {CONFIG_OF(", \"alpha_pattern\": {\"q_proj\": 0}"), "alpha_pattern: the value of \"q_proj\" is no usable number",
     MD_ERR_INVALID},
    {CONFIG_OF(", \"alpha_pattern\": {\".*q_proj\": 1}"), "\".*q_proj\" is a regular expression", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"alpha_pattern\": {\"q_proj|v_proj\": 1}"), "is a regular expression", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"alpha_pattern\": {\"a$b\": 1}"), "is a regular expression", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"alpha_pattern\": {\"\": 1}"), "is a regular expression", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"use_rslora\": 1"), "use_rslora: true or false", MD_ERR_INVALID},
    {CONFIG_OF(", \"use_dora\": true"), "use_dora is set: DoRA", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"bias\": \"lora_only\""), "bias is not \"none\"", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"bias\": true"), "bias is not \"none\"", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"lora_bias\": true"), "lora_bias is set", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"fan_in_fan_out\": true"), "fan_in_fan_out is set", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"modules_to_save\": [\"lm_head\"]"), "modules_to_save is set: modules that were saved whole",
     MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"trainable_token_indices\": {\"embed_tokens\": [1]}"), "trainable_token_indices is set",
     MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"target_parameters\": [\"x\"]"), "target_parameters is set", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"layer_replication\": [[0, 1]]"), "layer_replication is set", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"alora_invocation_tokens\": [1]"), "alora_invocation_tokens is set", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"use_qalora\": true"), "use_qalora is set", MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"megatron_config\": {\"a\": 1}"), "\"megatron_config\" is set, a key that this engine doesn't know",
     MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"new\\u001b[31m\": 1"), "\"new\\x1b[31m\" is set, a key that this engine doesn't know",
     MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"init_lora_weights\": \"pissa\""), "init_lora_weights is \"pissa\", which may change the base model",
     MD_ERR_UNSUPPORTED},
    {CONFIG_OF(", \"init_lora_weights\": 1"), "init_lora_weights is \"no text\"", MD_ERR_UNSUPPORTED},
};

Test(lora_files, should_fail_configurations)
{
	struct adapter_files files;
	files_begin(&files);
	put_pair(&files, QUERY, GGUF_TENSOR_F32, 2, 32, 16);
	put_tensors(&files);
	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
		put_config(&files, configs[i].config);
		assert_adapter_refused(&files, files.folder, configs[i].status, configs[i].words);
		cr_assert(strstr(files.err.message, files.folder), "\"%s\" does not name the file", files.err.message);
	}
	put_config(&files, CONFIG_OF());
	assert_loaded(&files, files.folder, &small_shape);
	files_end(&files);
}

Test(lora_files, should_fail_large_configuration)
{
	struct adapter_files files;
	size_t size = (1 << 20) + 1;
	char *text = malloc(size);
	memset(text, ' ', size);
	files_begin(&files);
	write_bytes(files.config_path, text, size);
	assert_adapter_refused(&files, files.folder, MD_ERR_TOO_LARGE, "1048577 bytes, at most 1048576");
	free(text);
	files_end(&files);
}

/* ---- the header of a safetensors file ----------------------------------------------------------------------------- */

/* A header of tensor A, which is to be 256 bytes of F32, with `place` instead of dtype, shape and offsets. */
#define ONE(place) "{\"" A "\": {" place "}}"
#define RIGHT "\"dtype\": \"F32\", \"shape\": [2, 32], \"data_offsets\": [0, 256]"

static const struct {
	const char *header, *words;
	enum md_status status;
} headers[] = {
    {"", "does not begin with {", MD_ERR_CORRUPT},
    {" {}", "does not begin with {", MD_ERR_CORRUPT},
    {"{", "the header: line 1, byte 1: ", MD_ERR_CORRUPT},
    {"{}", "256 bytes at the end of the file belong to no tensor", MD_ERR_CORRUPT},
    {"{} x", "end of file expected", MD_ERR_CORRUPT},
    {"{\"\xff\": 1}", "line 1, byte 2: unable to decode", MD_ERR_CORRUPT},
    {"{\"a\\u0000b\": 1}", "NUL byte in object key", MD_ERR_CORRUPT},
    {"{\"" A "\": {" RIGHT "}, \"" A "\": {" RIGHT "}}", "duplicate object key", MD_ERR_CORRUPT},
    {"{\"__metadata__\": 1}", "__metadata__ is no object", MD_ERR_CORRUPT},
    {"{\"__metadata__\": {\"a\": 1}}", "__metadata__ has values that are no text", MD_ERR_CORRUPT},
    {"{\"" A "\": 1}", "tensor \"" A "\": not an object of dtype, shape and data_offsets", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 32]"), "not an object of dtype, shape and data_offsets", MD_ERR_CORRUPT},
    {ONE(RIGHT ", \"more\": 1"), "not an object of dtype, shape and data_offsets", MD_ERR_CORRUPT},
    {ONE("\"dtype\": 1, \"shape\": [2, 32], \"data_offsets\": [0, 256]"), "dtype is no string", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F8_E4M3\", \"shape\": [2, 32], \"data_offsets\": [0, 64]"),
     "has dtype \"F8_E4M3\"; known are F32, F16 and BF16", MD_ERR_UNSUPPORTED},
    {ONE("\"dtype\": \"F32\", \"shape\": 64, \"data_offsets\": [0, 256]"), "shape is no list", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [1, 1, 1, 2, 32], \"data_offsets\": [0, 256]"), "shape is no list",
     MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [-2, 32], \"data_offsets\": [0, 256]"), "shape is no list", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2.0, 32], \"data_offsets\": [0, 256]"), "shape is no list", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [18446744073709551616, 1], \"data_offsets\": [0, 256]"), "too big integer",
     MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [4294967296, 4294967296], \"data_offsets\": [0, 0]"), "an impossible shape",
     MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [9223372036854775807, 2], \"data_offsets\": [0, 256]"), "an impossible shape",
     MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 32], \"data_offsets\": [0]"), "data_offsets are not two", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 32], \"data_offsets\": [256, 0]"), "data_offsets are not two",
     MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 32], \"data_offsets\": [-256, 0]"), "data_offsets are not two",
     MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 32], \"data_offsets\": [0, 128]"),
     "has 256 bytes by its shape, and 128 by its offsets", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F16\", \"shape\": [2, 32], \"data_offsets\": [0, 256]"),
     "has 128 bytes by its shape, and 256 by its offsets", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 16], \"data_offsets\": [0, 128]"),
     "128 bytes at the end of the file belong to no tensor", MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 16], \"data_offsets\": [128, 256]"), "the bytes between belong to none",
     MD_ERR_CORRUPT},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 33], \"data_offsets\": [0, 264]"),
     "ends at byte 264 behind the header, the file has 256", MD_ERR_TRUNCATED},
    {ONE("\"dtype\": \"F32\", \"shape\": [2, 32], \"data_offsets\": [9223372036854775551, 9223372036854775807]"),
     "begins at byte 9223372036854775551", MD_ERR_CORRUPT},
    {"{\"" A "\": {" RIGHT "}, \"" B "\": {\"dtype\": \"F32\", \"shape\": [16, 2], \"data_offsets\": [128, 256]}}",
     "tensors overlap", MD_ERR_CORRUPT},
    {"{\"" A "\": {" RIGHT "}, \"" B "\": {\"dtype\": \"F32\", \"shape\": [0, 2], \"data_offsets\": [0, 0]}}",
     "\"" B "\" has 0 x 2 elements", MD_ERR_MISMATCH},
    {"{\"" A "\": {" RIGHT "}, \"" B "\": {" RIGHT "}}", "tensors overlap", MD_ERR_CORRUPT},
};

Test(lora_files, should_fail_headers)
{
	static const uint8_t data[256];
	struct adapter_files files;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
		put_weights(&files, headers[i].header, data, sizeof(data));
		assert_adapter_refused(&files, files.folder, headers[i].status, headers[i].words);
		cr_assert(strstr(files.err.message, files.weights_path), "\"%s\" does not name the file",
			  files.err.message);
	}
	files_end(&files);
}

/* The first eight bytes, and no header. */
Test(lora_files, should_fail_sizes_of_headers)
{
	static const struct {
		uint64_t size;
		const char *words;
		enum md_status status;
	} cases[] = {
	    {UINT64_MAX, "the header would be larger than 2097152 bytes", MD_ERR_TOO_LARGE},
	    {(2 << 20) + 1, "the header would be larger than 2097152 bytes", MD_ERR_TOO_LARGE},
	    {2 << 20, "the header would go beyond the file's 8 bytes", MD_ERR_TRUNCATED},
	    {1, "the header would go beyond the file's 8 bytes", MD_ERR_TRUNCATED},
	    {0, "does not begin with {", MD_ERR_CORRUPT},
	};
	struct adapter_files files;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_bytes(files.weights_path, &cases[i].size, 8);
		assert_adapter_refused(&files, files.folder, cases[i].status, cases[i].words);
	}
	write_bytes(files.weights_path, "", 0);
	assert_adapter_refused(&files, files.folder, MD_ERR_TRUNCATED, "0 bytes: not a safetensors file");
	files_end(&files);
}

Test(lora_files, survives_truncation_anywhere)
{
	struct adapter_files files;
	struct md_file_bytes whole;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	put_pair(&files, QUERY, GGUF_TENSOR_F32, 2, 32, 16);
	put_tensors(&files);
	cr_assert_eq(md_file_read(files.weights_path, 1 << 20, &whole, NULL), MD_OK);
	for (size_t size = 0; size < whole.size; size++) {
		write_bytes(files.weights_path, whole.data, size);
		cr_assert_neq(lora_adapter_load(&files.adapter, files.folder, &small_shape, 8, 1 << 20, &files.err),
			      MD_OK, "a file cut at %zu was taken", size);
	}
	md_file_release(&whole);
	files_end(&files);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------ */

static const struct {
	struct {
		const char *name;
		size_t rows, columns;
	} tensors[3];
	const char *words;
	enum md_status status;
} plans[] = {
    {{{NULL, 0, 0}}, "no tensor: an adapter that changes nothing", MD_ERR_CORRUPT},
    {{{A, 2, 32}}, "tensor \"" B "\" is missing, and its other half is there", MD_ERR_CORRUPT},
    {{{B, 16, 2}}, "tensor \"" A "\" is missing, and its other half is there", MD_ERR_CORRUPT},
    {{{A, 2, 31}, {B, 16, 2}},
     "\"" A "\" has 2 x 31 elements; with the model's 32 inputs and rank 2 they would be 2 x 32",
     MD_ERR_MISMATCH},
    {{{A, 2, 32}, {B, 8, 2}},
     "\"" B "\" has 8 x 2 elements; with the model's 16 outputs and rank 2 they would be 16 x 2",
     MD_ERR_MISMATCH},
    {{{A, 32, 2}, {B, 16, 2}}, "has 32 x 2 elements; with the model's 32 inputs", MD_ERR_MISMATCH},
    {{{A, 2, 32}, {B, 16, 3}}, "\"" B "\" has rank 3, its other half 2", MD_ERR_CORRUPT},
    {{{B, 16, 3}, {A, 2, 32}}, "\"" A "\" has rank 2, its other half 3", MD_ERR_CORRUPT},
    {{{A, 65, 32}, {B, 16, 65}}, "\"" A "\" has rank 65, this engine takes 1 to 64", MD_ERR_TOO_LARGE},
    {{{A, 0, 32}, {B, 16, 0}}, "has rank 0, this engine takes 1 to 64", MD_ERR_CORRUPT},
    {{{"base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight", 2, 32}},
     "the model has layers 0 to 1",
     MD_ERR_MISMATCH},
    {{{"base_model.model.model.layers.00.self_attn.q_proj.lora_A.weight", 2, 32}},
     "is none that this engine can apply",
     MD_ERR_UNSUPPORTED},
    {{{"base_model.model.model.layers.4294967296.self_attn.q_proj.lora_A.weight", 2, 32}},
     "is none that this engine can apply",
     MD_ERR_UNSUPPORTED},
    {{{"base_model.model.model.layers.-1.self_attn.q_proj.lora_A.weight", 2, 32}},
     "is none that this engine can apply",
     MD_ERR_UNSUPPORTED},
    {{{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight", 2, 32}},
     "is none that this engine can apply",
     MD_ERR_UNSUPPORTED},
    {{{QUERY ".lora_A.bias", 2, 32}},
     "with names like base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
     MD_ERR_UNSUPPORTED},
    {{{QUERY ".lora_magnitude_vector", 2, 32}}, "is none that this engine can apply", MD_ERR_UNSUPPORTED},
    {{{"base_model.model.lm_head.lora_A.weight", 2, 32}}, "is none that this engine can apply", MD_ERR_UNSUPPORTED},
    {{{"base_model.model.model.embed_tokens.lora_embedding_A", 2, 32}},
     "is none that this engine can apply",
     MD_ERR_UNSUPPORTED},
    {{{A "x", 2, 32}}, "is none that this engine can apply", MD_ERR_UNSUPPORTED},
    {{{"x" A, 2, 32}}, "is none that this engine can apply", MD_ERR_UNSUPPORTED},
    {{{"a\\nb\\u001b", 2, 32}}, "tensor \"a\\x0ab\\x1b\" is none", MD_ERR_UNSUPPORTED},
    {{{"", 2, 32}}, "tensor \"\" is none", MD_ERR_UNSUPPORTED},
};

Test(lora_files, should_fail_tensors)
{
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		struct adapter_files files;
		files_begin(&files);
		put_config(&files, CONFIG_OF());
		for (size_t k = 0; k < 3 && plans[i].tensors[k].name; k++)
			put_tensor(&files, plans[i].tensors[k].name, GGUF_TENSOR_F32, plans[i].tensors[k].rows,
				   plans[i].tensors[k].columns, 0);
		put_tensors(&files);
		assert_adapter_refused(&files, files.folder, plans[i].status, plans[i].words);
		files_end(&files);
	}
}

Test(lora_files, should_fail_other_numbers_of_dimensions)
{
	static const char *const shapes[] = {"64", "2, 32, 1", "1, 2, 32", ""};
	static const size_t sizes[] = {256, 256, 256, 4};
	static const uint8_t data[256];
	struct adapter_files files;
	char header[512];
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	for (size_t i = 0; i < 4; i++) {
		snprintf(header, sizeof(header), ONE("\"dtype\": \"F32\", \"shape\": [%s], \"data_offsets\": [0, %zu]"),
			 shapes[i], sizes[i]);
		put_weights(&files, header, data, sizes[i]);
		assert_adapter_refused(&files, files.folder, MD_ERR_CORRUPT, "\"" A "\" has rank 0");
	}
	files_end(&files);
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

static void assert_value_refused(enum gguf_tensor_type type, const void *bits, size_t size, size_t at,
				 const char *words)
{
	struct adapter_files files;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	put_pair(&files, QUERY, type, 2, 32, 16);
	memcpy(files.data.data + at * size, bits, size);
	put_tensors(&files);
	assert_adapter_refused(&files, files.folder, MD_ERR_CORRUPT, words);
	files_end(&files);
}

Test(lora_files, should_fail_values)
{
	const uint32_t nan = 0x7f800001, infinity = 0xff800000, largest = 0x7f7fffff;
	const uint16_t half_nan = 0xfe00, half_infinity = 0x7c00, bf16_nan = 0x7fc0, bf16_infinity = 0xff80;
	assert_value_refused(GGUF_TENSOR_F32, &nan, 4, 0, "tensor \"" A "\": element 0 is not a number as bfloat16");
	assert_value_refused(GGUF_TENSOR_F32, &infinity, 4, 63, "tensor \"" A "\": element 63 is infinite as bfloat16");
	assert_value_refused(GGUF_TENSOR_F32, &largest, 4, 64, "tensor \"" B "\": element 0 is infinite as bfloat16");
	assert_value_refused(GGUF_TENSOR_F16, &half_nan, 2, 5, "tensor \"" A "\": element 5 is not a number");
	assert_value_refused(GGUF_TENSOR_F16, &half_infinity, 2, 95, "tensor \"" B "\": element 31 is infinite");
	assert_value_refused(GGUF_TENSOR_BF16, &bf16_nan, 2, 5, "tensor \"" A "\": element 5 is not a number");
	assert_value_refused(GGUF_TENSOR_BF16, &bf16_infinity, 2, 95, "tensor \"" B "\": element 31 is infinite");
}

/* The index counts from the tensor's first element, also in a later piece. */
Test(lora_files, should_fail_late_value)
{
	struct llama_shape shape = small_shape;
	struct adapter_files files;
	const uint32_t nan = 0x7fc00000;
	shape.hidden_size = 40000;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	put_pair(&files, QUERY, GGUF_TENSOR_F32, 2, 40000, 16);
	memcpy(files.data.data + 79999 * sizeof(nan), &nan, sizeof(nan));
	put_tensors(&files);
	cr_assert_eq(lora_adapter_load(&files.adapter, files.folder, &shape, 8, 1 << 20, &files.err), MD_ERR_CORRUPT);
	cr_assert(strstr(files.err.message, "element 79999 is not a number"), "%s", files.err.message);
	files_end(&files);
}

/* ---- GGUF --------------------------------------------------------------------------------------------------------- */

static void put_query(struct adapter_files *files)
{
	put_gguf_tensor(files, "blk.0.attn_q.weight.lora_a", GGUF_TENSOR_F32, 2, 32, 0);
	put_gguf_tensor(files, "blk.0.attn_q.weight.lora_b", GGUF_TENSOR_F32, 16, 2, 7);
}

/* General type, architecture and type of the adapter, and a key more; NULL: none. alpha NAN: none. */
static void assert_metadata_refused(const char *type, const char *architecture, const char *kind, const char *key,
				    uint32_t number, float alpha, enum md_status status, const char *words)
{
	struct adapter_files files;
	struct md_buf values;
	size_t count = 0;
	files_begin(&files);
	md_buf_init(&values);
	put_query(&files);
	if (type && ++count)
		put_gguf_pair(&values, "general.type", type);
	if (architecture && ++count)
		put_gguf_pair(&values, "general.architecture", architecture);
	if (kind && ++count)
		put_gguf_pair(&values, "adapter.type", kind);
	if (alpha == alpha && ++count)
		put_gguf_alpha(&values, alpha);
	if (key && ++count) {
		put_gguf_text(&values, key);
		md_buf_put_u32(&values, GGUF_U32);
		md_buf_put_u32(&values, number);
	}
	put_gguf(&files, &values, count);
	assert_adapter_refused(&files, files.gguf_path, status, words);
	cr_assert(strstr(files.err.message, files.gguf_path), "\"%s\" does not name the file", files.err.message);
	md_buf_finish(&values);
	files_end(&files);
}

Test(lora_files, should_fail_metadata)
{
	const float none = __builtin_nanf("");
	assert_metadata_refused(NULL, "llama", "lora", NULL, 0, 4, MD_ERR_NOT_FOUND, "\"general.type\" is missing");
	assert_metadata_refused("model", "llama", "lora", NULL, 0, 4, MD_ERR_UNSUPPORTED,
				"\"general.type\" is \"model\", wanted is \"adapter\"");
	assert_metadata_refused("adapter", NULL, "lora", NULL, 0, 4, MD_ERR_NOT_FOUND,
				"\"general.architecture\" is missing");
	assert_metadata_refused("adapter", "qwen2", "lora", NULL, 0, 4, MD_ERR_UNSUPPORTED,
				"\"general.architecture\" is \"qwen2\", wanted is \"llama\"");
	assert_metadata_refused("adapter", "llama", NULL, NULL, 0, 4, MD_ERR_NOT_FOUND, "\"adapter.type\" is missing");
	assert_metadata_refused("adapter", "llama", "control", NULL, 0, 4, MD_ERR_UNSUPPORTED,
				"\"adapter.type\" is \"control\", wanted is \"lora\"");
	assert_metadata_refused("adapter", "llama", "lora", NULL, 0, none, MD_ERR_NOT_FOUND,
				"\"adapter.lora.alpha\" is missing");
	assert_metadata_refused("adapter", "llama", "lora", NULL, 0, 0, MD_ERR_CORRUPT, "\"adapter.lora.alpha\" is 0");
	assert_metadata_refused("adapter", "llama", "lora", NULL, 0, __builtin_inff(), MD_ERR_CORRUPT,
				"blk.0.attn_q.weight: a scale of inf");
	assert_metadata_refused("adapter", "llama", "lora", "adapter.lora.alpha", 4, none, MD_ERR_CORRUPT,
				"\"adapter.lora.alpha\" has type 4, wanted a float");
	assert_metadata_refused("adapter", "llama", "lora", "adapter.lora.alpha", 4, 4, MD_ERR_CORRUPT,
				"\"adapter.lora.alpha\" is there 2 times");
	assert_metadata_refused("adapter", "llama", "lora", "general.type", 4, 4, MD_ERR_CORRUPT,
				"\"general.type\" is there 2 times");
	assert_metadata_refused("adapter", "llama", "lora", "adapter.alora.invocation_tokens", 1, 4, MD_ERR_UNSUPPORTED,
				"\"adapter.alora.invocation_tokens\" is none that this engine knows of an adapter");
	assert_metadata_refused("adapter", "llama", "lora", "llama.block_count", 3, 4, MD_ERR_MISMATCH,
				"\"llama.block_count\" is 3, the model has 2");
	assert_metadata_refused("adapter", "llama", "lora", "llama.attention.head_count_kv", 2, 4, MD_ERR_MISMATCH,
				"\"llama.attention.head_count_kv\" is 2, the model has 1");
}

static void assert_gguf_refused(const char *name, size_t rows, size_t columns, enum md_status status, const char *words)
{
	struct adapter_files files;
	struct md_buf values;
	files_begin(&files);
	put_gguf_metadata(&values);
	put_query(&files);
	put_gguf_tensor(&files, name, GGUF_TENSOR_F32, rows, columns, 0);
	put_gguf(&files, &values, 4);
	assert_adapter_refused(&files, files.gguf_path, status, words);
	md_buf_finish(&values);
	files_end(&files);
}

Test(lora_files, should_fail_tensors_of_gguf_files)
{
	assert_gguf_refused("blk.0.attn_q.weight.lora_a", 2, 32, MD_ERR_CORRUPT,
			    "tensor \"blk.0.attn_q.weight.lora_a\" is there twice");
	assert_gguf_refused("blk.1.attn_k.weight.lora_a", 2, 32, MD_ERR_CORRUPT,
			    "tensor \"blk.1.attn_k.weight.lora_b\" is missing, and its other half is there");
	assert_gguf_refused("blk.1.attn_k.weight.lora_a", 32, 2, MD_ERR_MISMATCH,
			    "with the model's 32 inputs and rank 32");
	assert_gguf_refused("blk.2.attn_k.weight.lora_a", 2, 32, MD_ERR_MISMATCH, "the model has layers 0 to 1");
	assert_gguf_refused("blk.0.attn_norm.weight", 1, 32, MD_ERR_UNSUPPORTED,
			    "with names like blk.0.attn_q.weight.lora_a");
	assert_gguf_refused("token_embd.weight.lora_a", 2, 32, MD_ERR_UNSUPPORTED,
			    "is none that this engine can apply");
	assert_gguf_refused("blk.0.attn_qkv.weight.lora_a", 2, 32, MD_ERR_UNSUPPORTED,
			    "is none that this engine can apply");
	assert_gguf_refused("blk.0.attn_q.lora_a", 2, 32, MD_ERR_UNSUPPORTED, "is none that this engine can apply");
}

Test(lora_files, should_fail_tensor_of_three_dimensions)
{
	struct adapter_files files;
	struct md_buf values;
	files_begin(&files);
	put_gguf_metadata(&values);
	put_gguf_text(&files.header, "blk.0.attn_q.weight.lora_a");
	md_buf_put_u32(&files.header, 3);
	for (size_t i = 0; i < 3; i++)
		md_buf_put_u64(&files.header, i ? 2 : 32);
	md_buf_put_u32(&files.header, GGUF_TENSOR_F32);
	md_buf_put_u64(&files.header, 0);
	files.tensors++;
	put_gguf_tensor(&files, "blk.0.attn_q.weight.lora_b", GGUF_TENSOR_F32, 64, 2, 0);
	put_gguf(&files, &values, 4);
	assert_adapter_refused(&files, files.gguf_path, MD_ERR_CORRUPT, "\"blk.0.attn_q.weight.lora_a\" has rank 0");
	md_buf_finish(&values);
	files_end(&files);
}

static void assert_adapter_silent(struct adapter_files *files, const char *path)
{
	static const char *const parts[] = {"secr", "ecret", "63657320", "72636573", " 0x"};
	enum md_status found =
	    lora_adapter_load(&files->adapter, path, &small_shape, LORA_MAX_RANK, 1 << 20, &files->err);
	cr_assert_neq(found, MD_OK, "%s is no adapter", path);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		cr_assert_null(strstr(files->err.message, parts[i]), "\"%s\" shows what is in the file",
			       files->err.message);
}

/* A model instead of an adapter, and something else altogether. */
Test(lora_files, should_fail_other_files)
{
	struct adapter_files files;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	assert_adapter_refused(&files, files.config_path, MD_ERR_INVALID, "adapter_config.json: give the folder with ");
	assert_adapter_refused(&files, files.weights_path, MD_ERR_INVALID,
			       "adapter_model.safetensors: give the folder with ");
	write_bytes(files.gguf_path, "{}{}{}{}{}{}{}{}{}{}{}{}", 24);
	assert_adapter_refused(&files, files.gguf_path, MD_ERR_CORRUPT, "not a GGUF file");
	write_bytes(files.gguf_path, "", 0);
	assert_adapter_refused(&files, files.gguf_path, MD_ERR_INVALID, "an empty file");
	files_end(&files);
}

/* Who asks for an adapter may name any file that the engine may read, so no message shows what is in it. */
Test(lora_files, should_fail_without_contents)
{
	static const char *const texts[] = {"secret and more of it",
					    "\"secret\" and more of it",
					    "{secret: 1}",
					    "{\"a\": secret}",
					    "{\"secret",
					    "{\"a\": \"secret\\q\"}",
					    "{\"a\": \xff}"};
	struct adapter_files files;
	files_begin(&files);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char weights[64] = {0};
		uint64_t size = strlen(texts[i]);
		put_config(&files, texts[i]);
		write_bytes(files.gguf_path, texts[i], size);
		assert_adapter_silent(&files, files.folder);
		assert_adapter_silent(&files, files.gguf_path);
		put_config(&files, CONFIG_OF());
		write_bytes(files.weights_path, texts[i], size);
		assert_adapter_silent(&files, files.folder);
		memcpy(weights, &size, sizeof(size));
		memcpy(weights + sizeof(size), texts[i], size);
		write_bytes(files.weights_path, weights, sizeof(size) + size);
		assert_adapter_silent(&files, files.folder);
	}
	files_end(&files);
}
