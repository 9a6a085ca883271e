/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out of adapters' files: values, order of rows, ranks and scales; and how much memory that takes. */
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/adapter_files.h"

#define VALUE "base_model.model.model.layers.1.self_attn.v_proj"
#define DOWN "base_model.model.model.layers.1.mlp.down_proj"

static struct lora_part part_of(const struct adapter_files *files, int layer, enum lora_projection projection)
{
	return files->adapter.parts[layer * LORA_PROJECTIONS + (int)projection];
}

static void assert_elements(const uint16_t *found, size_t count, size_t first)
{
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(found[i], gguf_bf16_from_float(element(first + i)), "element %zu is 0x%04x", i, found[i]);
}

/* ---- PEFT --------------------------------------------------------------------------------------------------------- */

Test(lora_adapter, reads_the_parts_that_are_there)
{
	struct adapter_files files;
	files_begin(&files);
	put_config(&files, CONFIG_OF(", \"rank_pattern\": {\"v_proj\": 5}"));
	put_pair(&files, VALUE, GGUF_TENSOR_F32, 5, 32, 8);
	put_pair(&files, DOWN, GGUF_TENSOR_F16, 2, 96, 32);
	put_tensors(&files);
	assert_loaded(&files, files.folder, &small_shape);
	for (int i = 0; i < 2 * LORA_PROJECTIONS; i++)
		cr_assert_eq(!files.adapter.parts[i].a,
			     i != LORA_PROJECTIONS + LORA_VALUE && i != LORA_PROJECTIONS + LORA_DOWN, "part %d", i);
	struct lora_part value = part_of(&files, 1, LORA_VALUE), down = part_of(&files, 1, LORA_DOWN);
	cr_assert_eq(value.rank, 5);
	cr_assert_eq(value.scale, 0.8f);
	assert_elements(value.a, 5 * 32, 0);
	assert_elements(value.b, 8 * 5, 7);
	cr_assert_eq(down.rank, 2);
	cr_assert_eq(down.scale, 2.0f);
	assert_elements(down.a, 2 * 96, 0);
	assert_elements(down.b, 32 * 2, 7);
	cr_assert_eq(files.adapter.rank, 5, "the largest one");
	cr_assert_eq(files.adapter.layers, 2);
	cr_assert_eq(files.adapter.bytes, 2 * (5 * 40 + 2 * 128) + 2 * LORA_PROJECTIONS * sizeof(struct lora_part));
	files_end(&files);
}

/* Names stand in any order in a header, and need not stand in that of the bytes. */
Test(lora_adapter, reads_tensors_in_any_order)
{
	struct adapter_files files;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	for (size_t i = 0; i < 16 + 64; i++)
		put_element(&files.data, GGUF_TENSOR_BF16, element(i));
	put_weights(
	    &files,
	    "{\"" VALUE ".lora_A.weight\": {\"dtype\": \"BF16\", \"shape\": [2, 32], \"data_offsets\": [32, 160]}, "
	    "\"__metadata__\": {\"format\": \"pt\"}, "
	    "\"" VALUE ".lora_B.weight\": {\"data_offsets\": [0, 32], \"dtype\": \"BF16\", \"shape\": [8, 2]}}   ",
	    files.data.data, files.data.size);
	assert_loaded(&files, files.folder, &small_shape);
	assert_elements(part_of(&files, 1, LORA_VALUE).a, 2 * 32, 16);
	assert_elements(part_of(&files, 1, LORA_VALUE).b, 8 * 2, 0);
	files_end(&files);
}

Test(lora_adapter, reads_every_projection_with_its_own_sizes)
{
	static const char *const modules[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
					      "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
					      "mlp.down_proj"};
	static const size_t inputs[] = {32, 32, 32, 16, 32, 32, 96}, outputs[] = {16, 8, 8, 32, 96, 96, 32};
	struct adapter_files files;
	char name[128];
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	for (int i = 0; i < LORA_PROJECTIONS; i++) {
		snprintf(name, sizeof(name), "base_model.model.model.layers.0.%s", modules[i]);
		put_pair(&files, name, GGUF_TENSOR_BF16, 2, inputs[i], outputs[i]);
		cr_assert_eq(lora_inputs(&small_shape, (enum lora_projection)i), (int)inputs[i], "%s", name);
		cr_assert_eq(lora_outputs(&small_shape, (enum lora_projection)i), (int)outputs[i], "%s", name);
	}
	put_tensors(&files);
	assert_loaded(&files, files.folder, &small_shape);
	for (int i = 0; i < LORA_PROJECTIONS; i++) {
		struct lora_part part = part_of(&files, 0, (enum lora_projection)i);
		assert_elements(part.a, 2 * inputs[i], 0);
		assert_elements(part.b, 2 * outputs[i], 7);
		cr_assert_null(part_of(&files, 1, (enum lora_projection)i).a);
	}
	files_end(&files);
}

/* More elements than are read at once. */
Test(lora_adapter, reads_large_matrices)
{
	struct llama_shape shape = small_shape;
	struct adapter_files files;
	shape.hidden_size = 40000;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	put_pair(&files, VALUE, GGUF_TENSOR_F32, 2, 40000, 8);
	put_tensors(&files);
	assert_loaded(&files, files.folder, &shape);
	assert_elements(part_of(&files, 1, LORA_VALUE).a, 80000, 0);
	files_end(&files);
}

static void assert_scale(const char *config, float scale)
{
	struct adapter_files files;
	files_begin(&files);
	put_config(&files, config);
	put_pair(&files, VALUE, GGUF_TENSOR_F32, 2, 32, 8);
	put_tensors(&files);
	assert_loaded(&files, files.folder, &small_shape);
	cr_assert_float_eq(part_of(&files, 1, LORA_VALUE).scale, scale, 1e-6f, "%s: scale %g, wanted %g", config,
			   (double)part_of(&files, 1, LORA_VALUE).scale, (double)scale);
	files_end(&files);
}

Test(lora_adapter, finds_the_scale_of_a_module)
{
	assert_scale(CONFIG_OF(), 2);
	assert_scale(CONFIG_OF(", \"use_rslora\": true"), 2.828427f);
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"v_proj\": 1.5}"), 0.75f);
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"proj\": 1}"), 2); /* no whole word at the end of the name */
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"q_proj\": 1}"), 2);
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"1.self_attn.v_proj\": 1}"), 0.5f);
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"model.layers.1.self_attn.v_proj\": 1}"), 0.5f);
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"^model.layers.1.self_attn.v_proj\": 1}"), 0.5f);
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"^layers.1.self_attn.v_proj\": 1}"), 2);
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"^......layers.1.self_attn.v_proj$\": 1}"), 0.5f);
	assert_scale(CONFIG_OF(", \"alpha_pattern\": {\"self_attn.v_proj\": 1, \"v_proj\": 8}"),
		     0.5f); /* the first one */
	assert_scale("{\"peft_type\": \"LORA\", \"r\": 8, \"rank_pattern\": {\"v_proj\": 2}, \"lora_alpha\": 8,"
		     "\"target_modules\": [\"q_proj\", \"v_proj\"], \"use_rslora\": true}",
		     5.656854f);
	assert_scale(
	    "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": -8, \"target_modules\": "
	    "[\"model.layers.1.self_attn.v_proj\"], \"layers_to_transform\": [3, 1], \"layers_pattern\": \"layers\"}",
	    -4);
	assert_scale("{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"v_proj\"], "
		     "\"layers_to_transform\": 1, \"layers_pattern\": [\"layers\"]}",
		     2);
}

/* As PEFT 0.18 writes it. */
Test(lora_adapter, takes_every_key_that_changes_nothing)
{
	assert_scale(
	    CONFIG_OF(
		", \"alora_invocation_tokens\": null, \"alpha_pattern\": {}, \"arrow_config\": null, \"auto_mapping\": "
		"{\"base_model_class\": \"LlamaForCausalLM\"}, \"base_model_name_or_path\": \"some/where\", "
		"\"bias\": \"none\", \"corda_config\": null, \"ensure_weight_tying\": false, \"eva_config\": null, "
		"\"exclude_modules\": null, \"fan_in_fan_out\": false, \"inference_mode\": true, "
		"\"init_lora_weights\": "
		"\"gaussian\", \"layer_replication\": null, \"layers_pattern\": null, \"layers_to_transform\": null, "
		"\"loftq_config\": {}, \"lora_bias\": false, \"lora_dropout\": 0.05, \"megatron_config\": null, "
		"\"megatron_core\": \"megatron.core\", \"modules_to_save\": null, \"peft_version\": \"0.18.0\", "
		"\"qalora_group_size\": 16, \"rank_pattern\": {}, \"revision\": null, \"target_parameters\": [], "
		"\"task_type\": \"CAUSAL_LM\", \"trainable_token_indices\": null, \"use_dora\": false, "
		"\"use_qalora\": false, \"use_rslora\": false, \"a_key_of_tomorrow\": null"),
	    2);
}

/* Caches of a hub have links in their folders. */
Test(lora_adapter, follows_links)
{
	struct adapter_files files;
	char moved[96], link[] = "/tmp/adapter-link-XXXXXX";
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	put_pair(&files, VALUE, GGUF_TENSOR_F32, 2, 32, 8);
	put_tensors(&files);
	snprintf(moved, sizeof(moved), "%s/blob", files.folder);
	cr_assert(rename(files.weights_path, moved) == 0 && symlink("blob", files.weights_path) == 0);
	cr_assert(mkdtemp(link) && rmdir(link) == 0 && symlink(files.folder, link) == 0);
	assert_loaded(&files, link, &small_shape);
	assert_elements(part_of(&files, 1, LORA_VALUE).a, 2 * 32, 0);
	unlink(link);
	unlink(moved);
	files_end(&files);
}

/* ---- the order of rows -------------------------------------------------------------------------------------------- */

/* Row i of the file's B is all element(7 + i), in a file of rank 1. */
static void assert_rows(const struct adapter_files *files, enum lora_projection projection, const int *rows, int count)
{
	struct lora_part part = part_of(files, 0, projection);
	for (int i = 0; i < count; i++)
		cr_assert_eq(part.b[i], gguf_bf16_from_float(element(7 + (size_t)rows[i])),
			     "row %d of projection %d is 0x%04x, wanted the file's row %d", i, (int)projection,
			     part.b[i], rows[i]);
}

static const int as_they_are[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const int beside[] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
static const int apart[] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};

static void assert_order(bool gguf, int interleaved, const int *rows)
{
	struct llama_shape shape = small_shape;
	struct adapter_files files;
	struct md_buf values;
	shape.rope_interleaved = interleaved;
	files_begin(&files);
	put_gguf_metadata(&values);
	put_config(&files,
		   "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 4, \"target_modules\": \"all-linear\"}");
	for (int i = 0; i < 3; i++) {
		char name[128];
		size_t outputs = i == 0 ? 16 : 8;
		if (gguf) {
			snprintf(name, sizeof(name), "blk.0.attn_%c.weight.lora_a", "qkv"[i]);
			put_gguf_tensor(&files, name, GGUF_TENSOR_F32, 1, 32, 0);
			snprintf(name, sizeof(name), "blk.0.attn_%c.weight.lora_b", "qkv"[i]);
			put_gguf_tensor(&files, name, GGUF_TENSOR_F32, outputs, 1, 7);
			continue;
		}
		snprintf(name, sizeof(name), "base_model.model.model.layers.0.self_attn.%c_proj", "qkv"[i]);
		put_pair(&files, name, GGUF_TENSOR_F32, 1, 32, outputs);
	}
	if (gguf)
		put_gguf(&files, &values, 4);
	else
		put_tensors(&files);
	assert_loaded(&files, gguf ? files.gguf_path : files.folder, &shape);
	assert_rows(&files, LORA_QUERY, rows, 16);
	assert_rows(&files, LORA_KEY, rows, 8);
	assert_rows(&files, LORA_VALUE, as_they_are, 8);
	md_buf_finish(&values);
	files_end(&files);
}

Test(lora_adapter, has_the_rows_of_query_and_key_in_the_order_of_the_model)
{
	assert_order(false, 0, as_they_are);
	assert_order(false, 1, beside);
	assert_order(true, 1, as_they_are);
	assert_order(true, 0, apart);
}

/* Rows of more than one element are moved whole. */
Test(lora_adapter, moves_whole_rows)
{
	struct llama_shape shape = small_shape;
	struct adapter_files files;
	shape.rope_interleaved = 1;
	files_begin(&files);
	put_config(&files, CONFIG_OF(", \"rank_pattern\": {\"q_proj\": 3}"));
	put_pair(&files, QUERY, GGUF_TENSOR_F32, 3, 32, 16);
	put_tensors(&files);
	assert_loaded(&files, files.folder, &shape);
	for (size_t row = 0; row < 16; row++)
		assert_elements(part_of(&files, 0, LORA_QUERY).b + row * 3, 3, 7 + (size_t)beside[row] * 3);
	files_end(&files);
}

/* No other part stands behind it: with more heads than there are, the sanitizer would see it. */
Test(lora_adapter, moves_rows_of_the_last_part)
{
	struct llama_shape shape = small_shape;
	struct adapter_files files;
	shape.rope_interleaved = 1;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	put_pair(&files, "base_model.model.model.layers.1.self_attn.k_proj", GGUF_TENSOR_F32, 2, 32, 8);
	put_tensors(&files);
	assert_loaded(&files, files.folder, &shape);
	for (size_t row = 0; row < 8; row++)
		assert_elements(part_of(&files, 1, LORA_KEY).b + row * 2, 2, 7 + (size_t)beside[row] * 2);
	files_end(&files);
}

/* ---- GGUF --------------------------------------------------------------------------------------------------------- */

Test(lora_adapter, reads_gguf_files_of_several_types)
{
	struct adapter_files files;
	struct md_buf values;
	files_begin(&files);
	put_gguf_metadata(&values);
	put_gguf_pair(&values, "adapter.lora.task_name", "anything");
	put_gguf_tensor(&files, "blk.1.attn_v.weight.lora_b", GGUF_TENSOR_BF16, 8, 4, 7);
	put_gguf_tensor(&files, "blk.1.attn_v.weight.lora_a", GGUF_TENSOR_Q8_0, 4, 32, 0);
	put_gguf_tensor(&files, "blk.0.ffn_down.weight.lora_a", GGUF_TENSOR_F16, 1, 96, 0);
	put_gguf_tensor(&files, "blk.0.ffn_down.weight.lora_b", GGUF_TENSOR_F32, 32, 1, 7);
	put_gguf(&files, &values, 5);
	assert_loaded(&files, files.gguf_path, &small_shape);
	struct lora_part value = part_of(&files, 1, LORA_VALUE), down = part_of(&files, 0, LORA_DOWN);
	cr_assert_eq(value.rank, 4);
	cr_assert_eq(value.scale, 1.0f);
	assert_elements(value.b, 32, 7);
	for (int i = 0; i < 4 * 32; i++)
		cr_assert_eq(value.a[i], gguf_bf16_from_float((float)(i % 32 - 16)), "element %d is 0x%04x", i,
			     value.a[i]);
	cr_assert_eq(down.rank, 1);
	cr_assert_eq(down.scale, 4.0f);
	assert_elements(down.a, 96, 0);
	assert_elements(down.b, 32, 7);
	md_buf_finish(&values);
	files_end(&files);
}

/* A writer that leaves out dimensions of 1 at the end, as ggml does, gives an A of rank 1 one dimension. */
Test(lora_adapter, reads_a_of_rank_1_with_one_dimension)
{
	struct adapter_files files;
	struct md_buf values;
	files_begin(&files);
	put_gguf_metadata(&values);
	put_gguf_text(&files.header, "blk.0.attn_v.weight.lora_a");
	md_buf_put_u32(&files.header, 1);
	md_buf_put_u64(&files.header, 32);
	md_buf_put_u32(&files.header, GGUF_TENSOR_F32);
	md_buf_put_u64(&files.header, 0);
	files.tensors++;
	for (size_t i = 0; i < 32; i++)
		put_element(&files.data, GGUF_TENSOR_F32, element(i));
	put_gguf_tensor(&files, "blk.0.attn_v.weight.lora_b", GGUF_TENSOR_F32, 8, 1, 7);
	put_gguf(&files, &values, 4);
	assert_loaded(&files, files.gguf_path, &small_shape);
	struct lora_part value = part_of(&files, 0, LORA_VALUE);
	cr_assert_eq(value.rank, 1);
	assert_elements(value.a, 32, 0);
	assert_elements(value.b, 8, 7);
	md_buf_finish(&values);
	files_end(&files);
}

/* ---- memory and files --------------------------------------------------------------------------------------------- */

Test(lora_adapter, takes_no_more_memory_than_it_may)
{
	struct adapter_files files;
	size_t bytes = 2 * 2 * 40 + 2 * LORA_PROJECTIONS * sizeof(struct lora_part);
	char words[128];
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	put_pair(&files, VALUE, GGUF_TENSOR_F32, 2, 32, 8);
	put_tensors(&files);
	cr_assert_eq(lora_adapter_load(&files.adapter, files.folder, &small_shape, 2, bytes, &files.err), MD_OK, "%s",
		     files.err.message);
	lora_adapter_finish(&files.adapter);
	cr_assert_eq(lora_adapter_load(&files.adapter, files.folder, &small_shape, 2, bytes - 1, &files.err),
		     MD_ERR_TOO_LARGE);
	snprintf(words, sizeof(words), "the adapter takes %zu bytes of memory, at most %zu are allowed", bytes,
		 bytes - 1);
	cr_assert(strstr(files.err.message, words), "%s", files.err.message);
	cr_assert_eq(lora_adapter_load(&files.adapter, files.folder, &small_shape, 1, bytes, &files.err),
		     MD_ERR_TOO_LARGE);
	cr_assert(strstr(files.err.message, "has rank 2, this engine takes 1 to 1"), "%s", files.err.message);
	cr_assert_eq(lora_adapter_load(&files.adapter, files.folder, &small_shape, 65, bytes, &files.err),
		     MD_ERR_INVALID);
	files_end(&files);
}

static off_t cut_at;    /* the file ends here once a read reaches so far; 0: it stays whole */
static int whole_reads; /* before that */

ssize_t pread(int fd, void *out, size_t size, off_t offset)
{
	if (cut_at && whole_reads-- <= 0 && offset + (off_t)size > cut_at) {
		char path[64];
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		cr_assert_eq(truncate(path, cut_at), 0);
	}
	return syscall(SYS_pread64, fd, out, size, offset);
}

static void assert_cut_refused(struct adapter_files *files, const char *path, const char *file, const char *tensor)
{
	char words[256];
	struct stat info;
	cr_assert_eq(stat(file, &info), 0);
	cut_at = info.st_size - 3;
	snprintf(words, sizeof(words), "%s: tensor \"%s\": the file ends at offset %lld", file, tensor,
		 (long long)cut_at);
	assert_adapter_refused(files, path, MD_ERR_TRUNCATED, words);
	cut_at = 0;
}

Test(lora_adapter, should_fail_file_that_becomes_shorter)
{
	struct adapter_files files;
	struct md_buf values;
	files_begin(&files);
	put_config(&files, CONFIG_OF());
	put_pair(&files, VALUE, GGUF_TENSOR_F32, 2, 32, 8);
	put_tensors(&files);
	assert_cut_refused(&files, files.folder, files.weights_path, VALUE ".lora_B.weight");
	files_end(&files);
	files_begin(&files);
	put_gguf_metadata(&values);
	put_gguf_tensor(&files, "blk.1.attn_v.weight.lora_a", GGUF_TENSOR_F32, 2, 32, 0);
	put_gguf_tensor(&files, "blk.1.attn_v.weight.lora_b", GGUF_TENSOR_F32, 8, 2, 0);
	put_gguf(&files, &values, 4);
	whole_reads = 1; /* the head is read, and in a small file all that follows it */
	assert_cut_refused(&files, files.gguf_path, files.gguf_path, "blk.1.attn_v.weight.lora_b");
	md_buf_finish(&values);
	files_end(&files);
}

Test(lora_adapter, should_fail_paths)
{
	struct adapter_files files;
	files_begin(&files);
	assert_adapter_refused(&files, "/nonexistent/adapter", MD_ERR_NOT_FOUND, "/nonexistent/adapter: No such file");
	assert_adapter_refused(&files, "/dev/null", MD_ERR_INVALID, "/dev/null: not a regular file but a device");
	assert_adapter_refused(&files, files.folder, MD_ERR_NOT_FOUND, "adapter_config.json: No such file");
	put_config(&files, CONFIG_OF());
	assert_adapter_refused(&files, files.folder, MD_ERR_NOT_FOUND,
			       "adapter_model.bin, a Python pickle, is not read");
	cr_assert_eq(mkfifo(files.weights_path, 0600), 0);
	assert_adapter_refused(&files, files.folder, MD_ERR_INVALID,
			       "adapter_model.safetensors: not a regular file but a pipe");
	unlink(files.weights_path);
	cr_assert_eq(mkdir(files.weights_path, 0700), 0);
	assert_adapter_refused(&files, files.folder, MD_ERR_INVALID,
			       "adapter_model.safetensors: not a regular file but a folder");
	rmdir(files.weights_path);
	cr_assert(symlink("adapter_model.safetensors", files.weights_path) == 0);
	assert_adapter_refused(&files, files.folder, MD_ERR_IO, "Too many levels of symbolic links");
	files_end(&files);
}
