/* SPDX-License-Identifier: Apache-2.0 */
/* llama-engine: the reference engine's cold start, from the command line to generated text, in stages. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/splitmix.h"
#include "base/thread.h"
#include "models/llama/adapters/adapter_check.h"
#include "models/llama/lora/prompt_adapters.h"
#include "models/llama/integration.h"
#include "models/llama/options.h"
#include "models/llama/reference_model.h"
#include "models/llama/report.h"
#include "models/llama/serve/serve.h"

#define HOST_KV_BYTES (256ull << 20)
#define DEFAULT_CONTEXT 2048
#define REFERENCE_BOUND 1e-5 /* of a row's root mean square */

struct program {
	struct llama_options options;
	struct gguf gguf;
	struct tokenizer tokenizer;
	struct llama_shape shape;
	struct llama_device device;
	struct llama_model model;
	struct llama_engine engine;
	struct llama_graphs graphs;
	struct llama_generation generation;
	struct prompt_adapters adapters;
	struct llama_report report;
	struct llama_serve *serve;
	uint64_t attach_ns; /* making the weights' memory: one that another process has filled is attached there */
};

static void __attribute__((format(printf, 2, 3))) progress(const struct program *p, const char *format, ...)
{
	va_list args;
	if (p->options.quiet)
		return;
	va_start(args, format);
	fprintf(stderr, "%8.1f ms  ", (double)(md_clock_ns() - p->report.started) / 1e6);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

static void end_stage(struct program *p, enum llama_stage stage, uint64_t start)
{
	p->report.stage_ns[stage] = md_clock_ns() - start;
	integration_stage(llama_stage_names[stage], p->report.stage_ns[stage]);
}

static enum md_status open_model_file(struct program *p, struct md_error *err)
{
	if (p->options.recipe)
		return recipe_load(p->options.recipe, &p->shape, err);
	MD_FORWARD(gguf_open(&p->gguf, p->options.model, err));
	if (tokenizer_init(&p->tokenizer, &p->gguf, err) != MD_OK ||
	    recipe_from_gguf(&p->gguf, &p->shape, err) != MD_OK)
		return md_error_prefix(err, "%s", p->options.model);
	if (p->tokenizer.count > (uint32_t)p->shape.vocabulary)
		return md_error_set(err, MD_ERR_CORRUPT, "%s: %u tokens, but embeddings for %d", p->options.model,
				    p->tokenizer.count, p->shape.vocabulary);
	p->generation.tokenizer = &p->tokenizer;
	return MD_OK;
}

/* The model's file is read, and its tokens are listed, while the driver makes the context: neither needs the other. */
struct opening {
	struct program *program;
	pthread_t thread;
	bool started;
	enum md_status status;
	struct md_error err;
};

static void *run_opening(void *argument)
{
	struct opening *opening = argument;
	opening->status = open_model_file(opening->program, &opening->err);
	return NULL;
}

static void begin_opening(struct opening *opening, struct program *p)
{
	opening->program = p;
	opening->started = !md_thread_start(&opening->thread, run_opening, opening);
}

static enum md_status end_opening(struct opening *opening, struct md_error *err)
{
	if (opening->started)
		pthread_join(opening->thread, NULL);
	else
		run_opening(opening);
	if (opening->status != MD_OK)
		*err = opening->err;
	return opening->status;
}

static enum md_status choose_limits(const struct program *p, struct llama_limits *limits, struct md_error *err)
{
	const struct llama_options *o = &p->options;
	*limits = (struct llama_limits){.max_batch = (int)o->batches[o->batch_count - 1],
					.max_context = o->max_context,
					/* a server's requests have temperatures of their own */
					.temperature = o->serve ? 0 : (float)o->temperature,
					.sample_seed = o->sample_seed,
					.lora_slots = o->lora_slots,
					.max_lora_rank = o->max_lora_rank};
	if (limits->max_context > p->shape.max_context)
		return md_error_set(err, MD_ERR_INVALID, "--max-context %d: the model has %d", limits->max_context,
				    p->shape.max_context);
	if (!limits->max_context)
		limits->max_context = p->shape.max_context < DEFAULT_CONTEXT ? p->shape.max_context : DEFAULT_CONTEXT;
	return MD_OK;
}

static enum md_status read_weights(struct program *p, struct md_error *err)
{
	struct loader_report *load = &p->report.load;
	unsigned threads = p->options.load_threads ? (unsigned)p->options.load_threads : loader_default_threads();
	if (llama_model_load(&p->model, &p->gguf, threads, load, err) != MD_OK)
		return md_error_prefix(err, "%s", p->options.model);
	progress(p, "load: %.1f MB of the file in %.1f ms, %.2f GB/s by %u threads", (double)load->file_bytes / 1e6,
		 (double)load->ns / 1e6, (double)load->file_bytes / (double)load->ns, load->threads);
	return MD_OK;
}

/* What tells the weights from others of the same shape. */
static enum md_status describe_weights(const struct program *p, char text[256], struct md_error *err)
{
	struct stat info;
	if (!p->options.model) {
		snprintf(text, 256, "made from seed %llu, scale %.17g", (unsigned long long)p->options.seed,
			 p->shape.scale);
		return MD_OK;
	}
	if (stat(p->options.model, &info))
		return md_error_set(err, MD_ERR_IO, "%s: %s", p->options.model, strerror(errno));
	snprintf(text, 256, "file %llu of device %llu with %lld bytes of %lld.%09ld", (unsigned long long)info.st_ino,
		 (unsigned long long)info.st_dev, (long long)info.st_size, (long long)info.st_mtim.tv_sec,
		 info.st_mtim.tv_nsec);
	return MD_OK;
}

static enum md_status make_model(struct program *p, struct md_error *err)
{
	char weights[256];
	struct llama_share share = {.name = p->options.share, .weights = weights};
	uint64_t began = md_clock_ns();
	MD_FORWARD(describe_weights(p, weights, err));
	MD_FORWARD(llama_model_create(&p->model, &p->device, &p->shape, share.name ? &share : NULL, err));
	p->attach_ns = md_clock_ns() - began;
	if (p->model.filled)
		progress(p, "weights: shared as %s, and filled by another process", share.name);
	return MD_OK;
}

static enum md_status load_weights(struct program *p, struct md_error *err)
{
	uint64_t start = md_clock_ns() - p->attach_ns;
	if (!p->model.filled && p->options.model)
		MD_FORWARD(read_weights(p, err));
	else if (!p->model.filled)
		MD_FORWARD(llama_model_fill(&p->model, p->options.seed, err));
	/* a server's memory can be swapped, and what is read-only stays (docs/swapping.md) */
	if (!p->options.serve || p->model.shared)
		MD_FORWARD(llama_model_seal(&p->model, err));
	integration_bind_weights(&p->model, &p->engine.limits);
	p->report.weight_bytes = p->model.bytes;
	end_stage(p, STAGE_WEIGHTS, start);
	progress(p, "weights: %.1f MB", (double)p->model.bytes / 1e6);
	return MD_OK;
}

/* ---- KV capacity ---------------------------------------------------------------------------------------------- */

/* All tokens stand in the scratch block of a KV cache of one block: a forward of `tokens` tokens without
 * a real cache. */
static enum md_status forward_scratch(struct llama_engine *engine, int tokens, struct md_error *err)
{
	bool borrowed = !engine->kv.address;
	struct llama_step step = {
	    .activations = &engine->eager,
	    .tokens = tokens,
	    .rows = engine->rows.address,
	    .row_count = 1,
	    .positions = engine->positions.address,
	};
	if (borrowed)
		MD_FORWARD(llama_engine_take_kv(engine, 1, err));
	for (int i = 0; i < tokens; i++)
		engine->staging[i] = i;
	enum md_status status =
	    llama_engine_upload(engine, engine->positions.address, engine->staging, 4 * (size_t)tokens, err);
	for (int i = 0; i < tokens; i++)
		engine->staging[i] = engine->scratch_slot;
	if (status == MD_OK)
		status = llama_engine_upload(engine, engine->slots.address, engine->staging, 4 * (size_t)tokens, err);
	if (status == MD_OK)
		status = llama_engine_step(engine, &step, err);
	if (status == MD_OK)
		status = llama_engine_wait(engine, err);
	if (borrowed)
		llama_engine_free_kv(engine);
	return status;
}

static int profile(void *user)
{
	struct llama_engine *engine = user;
	int tokens =
	    engine->prefill_tokens < engine->limits.max_context ? engine->prefill_tokens : engine->limits.max_context;
	struct md_error err;
	if (forward_scratch(engine, tokens, &err) == MD_OK)
		return 0;
	fprintf(stderr, "llama-engine: profiling forward: %s\n", err.message);
	return 1;
}

/* Triggering kernel: one token makes every image of the engine and of its matrix library load. */
static int first_layer(void *user)
{
	struct md_error err;
	return forward_scratch(user, 1, &err) == MD_OK ? 0 : 1;
}

static enum md_status measure_kv(struct program *p, uint64_t *bytes, struct md_error *err)
{
	char key[33];
	uint64_t block = llama_engine_block_bytes(&p->engine);
	uint64_t cap = p->options.max_kv_bytes ? p->options.max_kv_bytes
		       : p->device.on_host     ? HOST_KV_BYTES
					       : UINT64_MAX;
	llama_engine_fingerprint(&p->engine, key);
	int result = integration_kv_capacity(key, block, p->options.utilization, profile, &p->engine, bytes,
					     &p->report.kv_from_profile);
	if (result)
		return md_error_set(err, MD_ERR_DRIVER, "KV capacity: %s (%d)", integration_reason(), result);
	*bytes = *bytes < cap ? *bytes : cap;
	return MD_OK;
}

static enum md_status take_kv(struct program *p, struct md_error *err)
{
	uint64_t start = md_clock_ns(), block = llama_engine_block_bytes(&p->engine),
		 bytes = block * (uint64_t)p->options.kv_blocks;
	if (!p->options.kv_blocks)
		MD_FORWARD(measure_kv(p, &bytes, err));
	uint64_t blocks = bytes / block;
	if (blocks < 2)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%llu bytes for the KV cache, 2 blocks take %llu",
				    (unsigned long long)bytes, (unsigned long long)block * 2);
	MD_FORWARD(llama_engine_take_kv(&p->engine, blocks > 1 << 24 ? 1 << 24 : (int)blocks, err));
	p->report.kv_blocks = p->engine.kv_blocks;
	p->report.kv_bytes = p->engine.kv.bytes;
	end_stage(p, STAGE_KV, start);
	progress(p, "kv: %d blocks, %.1f MB%s", p->engine.kv_blocks, (double)p->engine.kv.bytes / 1e6,
		 p->report.kv_from_profile ? " (from the profile)" : "");
	return MD_OK;
}

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

static bool is_recorded(void)
{
	const char *mode = integration_mode();
	return !strcmp(mode, "capture") || !strcmp(mode, "verify");
}

static enum md_status prepare_graphs(struct program *p, struct md_error *err)
{
	struct llama_graphs *graphs = &p->graphs;
	size_t restored = 0;
	integration_bind_buffers(&p->engine);
	integration_trigger(first_layer, &p->engine);
	if (p->options.no_graphs)
		return MD_OK;
	if (p->options.bench_background)
		MD_FORWARD(llama_graphs_measure_background(graphs, &p->engine, p->options.bench_background,
							   &p->report.background, err));
	if (p->engine.lora.slots && is_recorded())
		MD_FORWARD(lora_pool_fill(&p->engine.lora, &p->device, p->engine.stream, p->options.seed + 277, err));
	MD_FORWARD(llama_graphs_prepare(graphs, &p->engine, err));
	uint64_t *stages = p->report.stage_ns;
	stages[STAGE_RESTORE] = graphs->restore_ns;
	stages[STAGE_WARMUP] = graphs->warmup_ns;
	stages[STAGE_CAPTURE] = graphs->capture_ns;
	stages[STAGE_INSTANTIATE] = graphs->instantiate_ns;
	stages[STAGE_FIRST_GRAPH] = graphs->first_ready_at - p->report.started;
	for (enum llama_stage stage = STAGE_RESTORE; stage <= STAGE_FIRST_GRAPH; stage++)
		integration_stage(llama_stage_names[stage], stages[stage]);
	for (size_t i = 0; i < graphs->count; i++)
		restored += graphs->graphs[i].restored;
	progress(p, "graphs: %zu restored, %zu live (warm-up %.1f ms, capture %.1f ms, instantiate %.1f ms)", restored,
		 graphs->count - restored, (double)graphs->warmup_ns / 1e6, (double)graphs->capture_ns / 1e6,
		 (double)graphs->instantiate_ns / 1e6);
	return MD_OK;
}

static enum md_status start(struct program *p, struct md_error *err)
{
	struct llama_limits limits;
	uint64_t at = md_clock_ns();
	struct opening opening = {0};
	begin_opening(&opening, p);
	enum md_status status = llama_device_open(&p->device, p->options.device, err);
	end_stage(p, STAGE_CONTEXT, at);
	at = md_clock_ns();
	MD_FORWARD(end_opening(&opening, err)); /* its message goes first: a user can mend the file */
	MD_FORWARD(status);
	p->report.device = p->device.name;
	progress(p, "device: %s", p->device.name);
	MD_FORWARD(choose_limits(p, &limits, err));
	MD_FORWARD(make_model(p, err));
	MD_FORWARD(llama_engine_create(&p->engine, &p->device, &p->model, &limits, err));
	MD_FORWARD(llama_graphs_init(&p->graphs, &p->engine, p->options.batches,
				     p->options.no_graphs ? 0 : p->options.batch_count, err));
	end_stage(p, STAGE_ENGINE, at + p->attach_ns); /* which counts with the weights */
	integration_want(p->graphs.label, p->options.batches, p->graphs.count);
	MD_FORWARD(load_weights(p, err));
	MD_FORWARD(take_kv(p, err));
	MD_FORWARD(prepare_graphs(p, err));
	p->report.stage_ns[STAGE_READY] = md_clock_ns() - p->report.started;
	integration_ready();
	return MD_OK;
}

/* ---- after the start -------------------------------------------------------------------------------------------- */

static enum md_status check(struct program *p, struct md_error *err)
{
	if (!p->options.check)
		return MD_OK;
	MD_FORWARD(llama_graphs_check(&p->graphs, &p->engine, p->options.seed + 77, &p->report.check_equal, err));
	p->report.checked = true;
	printf("check: %zu of %zu graphs bit-equal to eager\n", p->report.check_equal, p->graphs.count);
	return MD_OK;
}

static enum md_status make_prompt(struct program *p, size_t i, struct token_list *out, struct md_error *err)
{
	const char *text = p->options.prompts.all[i];
	if (p->options.model && p->options.raw)
		return tokenizer_encode(&p->tokenizer, text, strlen(text), true, out, err);
	if (p->options.model)
		return tokenizer_encode_chat(&p->tokenizer, text, out, err);
	/* a recipe has no tokenizer: 4 to 11 tokens drawn from the seed */
	uint64_t state = p->options.seed * MD_RANDOM_STEP + i + 1;
	for (unsigned k = 0; k < 4 + i % 8; k++) {
		state = (state ^ state >> 29) * 0xbf58476d1ce4e5b9u + k;
		if (!token_list_push(out, (int32_t)((state >> 20) % (uint64_t)p->shape.vocabulary)))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a prompt");
	}
	return MD_OK;
}

static enum md_status make_prompts(struct program *p, struct md_error *err)
{
	size_t count = p->options.prompts.count                 ? p->options.prompts.count
		       : p->options.recipe && p->options.tokens ? 1
								: 0;
	p->generation.sequences = calloc(count + 1, sizeof(*p->generation.sequences));
	p->report.texts = calloc(count + 1, sizeof(*p->report.texts));
	if (!p->generation.sequences || !p->report.texts)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu prompts", count);
	p->generation.count = count;
	p->generation.max_tokens = p->options.tokens;
	for (size_t i = 0; i < count; i++) {
		struct llama_sequence *sequence = &p->generation.sequences[i];
		MD_FORWARD(make_prompt(p, i, &sequence->prompt, err));
		MD_FORWARD(prompt_adapters_slot(&p->adapters, &p->options, i, count, &sequence->adapter, err));
	}
	if (!p->options.reference)
		return MD_OK;
	p->generation.kept =
	    calloc(count * (size_t)p->options.tokens + 1, (size_t)p->shape.vocabulary * sizeof(*p->generation.kept));
	return p->generation.kept ? MD_OK
				  : md_error_set(err, MD_ERR_NO_MEMORY, "--reference: out of memory for the logits");
}

static enum md_status generate(struct program *p, struct md_error *err)
{
	MD_FORWARD(make_prompts(p, err));
	for (int round = 0; round < p->options.repeat; round++) {
		struct md_hash earlier = p->generation.logits;
		for (size_t i = 0; i < p->generation.count; i++)
			p->generation.sequences[i].output.count = 0;
		MD_FORWARD(llama_generate(&p->generation, &p->engine, &p->graphs, err));
		if (round && !md_hash_equal(&earlier, &p->generation.logits))
			return md_error_set(err, MD_ERR_MISMATCH, "round %d gave other logits than the one before",
					    round + 1);
	}
	p->report.stage_ns[STAGE_PREFILL] = p->generation.prefill_ns;
	p->report.stage_ns[STAGE_FIRST_TOKEN] = p->generation.first_token_ns;
	p->report.stage_ns[STAGE_DECODE] = p->generation.decode_ns;
	if (p->generation.count)
		progress(p, "generated %zu tokens: prefill %.1f ms, decode %.1f ms", p->generation.tokens,
			 (double)p->generation.prefill_ns / 1e6, (double)p->generation.decode_ns / 1e6);
	return MD_OK;
}

/* Fails where a logit lies further from the reference than what single precision accounts for. */
static enum md_status compare_with_reference(struct program *p, struct md_error *err)
{
	struct reference_model reference = {0};
	struct reference_result result;
	if (!p->options.reference)
		return MD_OK;
	enum md_status status = reference_model_init(&reference, &p->model, err);
	if (status == MD_OK)
		status = reference_model_compare(&reference, &p->generation, p->adapters.slots, &result, err);
	reference_model_finish(&reference);
	MD_FORWARD(status);
	printf("reference: %zu rows of logits, at most %.1e away; with merged adapters %.1e\n", result.rows,
	       result.largest[REFERENCE_UNMERGED], result.largest[REFERENCE_MERGED]);
	if (result.rows && result.largest[REFERENCE_UNMERGED] <= REFERENCE_BOUND &&
	    result.largest[REFERENCE_MERGED] <= REFERENCE_BOUND)
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH, "--reference: logits are further away than %.0e of their size",
			    REFERENCE_BOUND);
}

static enum md_status print_texts(struct program *p, struct md_error *err)
{
	for (size_t i = 0; i < p->generation.count; i++) {
		const struct token_list *output = &p->generation.sequences[i].output;
		if (p->generation.count > 1)
			printf("[%zu] ", i + 1);
		if (p->options.model) {
			p->report.texts[i] = tokenizer_decode(&p->tokenizer, output->tokens, output->count);
			if (!p->report.texts[i])
				return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a text");
			puts(p->report.texts[i]);
			continue;
		}
		for (size_t t = 0; t < output->count; t++)
			printf("%s%d", t ? " " : "", output->tokens[t]);
		putchar('\n');
	}
	return MD_OK;
}

/* ---- serving ---------------------------------------------------------------------------------------------------- */

/* Whoever waits for the engine is answered, with 503, from here on. */
static enum md_status listen_early(struct program *p, struct md_error *err)
{
	const char *listen = p->options.serve, *colon = strrchr(listen, ':');
	MD_FORWARD(llama_serve_open(&p->options, &p->serve, err));
	unsigned port = llama_serve_port(p->serve);
	if (port)
		printf("listening on %.*s:%u\n", (int)(colon - listen), listen, port);
	else
		printf("listening on %s\n", listen);
	fflush(stdout);
	return MD_OK;
}

/* The file's name, without folders and ending. */
static enum md_status name_model(const struct program *p, char name[128], struct md_error *err)
{
	const char *path = p->options.served_name ? p->options.served_name : p->report.model;
	const char *slash = strrchr(path, '/');
	const char *begin = p->options.served_name || !slash ? path : slash + 1;
	const char *end = p->options.served_name ? NULL : strrchr(begin, '.');
	size_t size = end && end > begin ? (size_t)(end - begin) : strlen(begin);
	if (!size || size >= 128)
		return md_error_set(err, MD_ERR_INVALID, "--served-name: a name of 1 to 127 bytes is wanted");
	memcpy(name, begin, size);
	name[size] = '\0';
	return MD_OK;
}

/* Nobody sends requests while the engine is recorded: each graph gets two sets of random inputs. */
static enum md_status exercise(struct program *p, struct md_error *err)
{
	size_t equal;
	for (uint64_t round = 0; round < 2; round++)
		MD_FORWARD(llama_graphs_check(&p->graphs, &p->engine, p->options.seed + 177 + round, &equal, err));
	integration_complete();
	return MD_OK;
}

static enum md_status serve(struct program *p, struct md_error *err)
{
	char name[128];
	struct llama_serving serving = {
	    .engine = &p->engine,
	    .graphs = &p->graphs,
	    .tokenizer = p->options.model ? &p->tokenizer : NULL,
	    .name = name,
	    .options = &p->options,
	};
	MD_FORWARD(name_model(p, name, err));
	MD_FORWARD(listen_early(p, err));
	MD_FORWARD(start(p, err));
	MD_FORWARD(check(p, err));
	if (is_recorded())
		MD_FORWARD(exercise(p, err));
	progress(p, "serving %s", name);
	return llama_serve_run(p->serve, &serving, err);
}

static enum md_status run(struct program *p, struct md_error *err)
{
	if (p->options.check_adapter) {
		MD_FORWARD(open_model_file(p, err));
		return adapter_check(p->options.check_adapter, &p->shape, err);
	}
	p->report.mode = integration_mode();
	p->report.graphs = &p->graphs;
	p->report.generation = &p->generation;
	p->report.model = p->options.model ? p->options.model : p->options.recipe;
	if (p->options.serve)
		return serve(p, err);
	MD_FORWARD(start(p, err));
	MD_FORWARD(prompt_adapters_load(&p->adapters, &p->engine, &p->options, err));
	MD_FORWARD(check(p, err));
	if (p->options.bench_replay)
		MD_FORWARD(llama_graphs_measure(&p->graphs, &p->engine, p->options.bench_replay, err));
	MD_FORWARD(generate(p, err));
	MD_FORWARD(print_texts(p, err));
	MD_FORWARD(compare_with_reference(p, err));
	if (p->options.report)
		MD_FORWARD(llama_report_write(&p->report, p->options.report, err));
	if (p->report.checked && p->report.check_equal != p->graphs.count)
		return md_error_set(err, MD_ERR_MISMATCH, "%zu graphs differ from eager",
				    p->graphs.count - p->report.check_equal);
	return MD_OK;
}

static void finish(struct program *p)
{
	for (size_t i = 0; p->generation.sequences && i < p->generation.count; i++) {
		token_list_finish(&p->generation.sequences[i].prompt);
		token_list_finish(&p->generation.sequences[i].output);
		free(p->report.texts ? p->report.texts[i] : NULL);
	}
	free(p->generation.sequences);
	free(p->report.texts);
	free(p->generation.kept);
	prompt_adapters_finish(&p->adapters);
	llama_serve_close(p->serve);
	integration_release();
	llama_graphs_finish(&p->graphs);
	llama_engine_finish(&p->engine);
	llama_model_finish(&p->model);
	llama_device_close(&p->device);
	tokenizer_finish(&p->tokenizer);
	gguf_close(&p->gguf);
}

int main(int argc, char **argv)
{
	struct md_error err = {0};
	MD_AUTO_FREE struct program *p = calloc(1, sizeof(*p));
	if (!p) {
		fprintf(stderr, "llama-engine: out of memory for %zu bytes\n", sizeof(*p));
		return 1;
	}
	p->report.started = md_clock_ns();
	enum md_status status = llama_options_parse(&p->options, argc, argv, &err);
	if (status == MD_OK && p->options.help) {
		fputs(llama_options_usage, stdout);
		return 0;
	}
	if (status == MD_OK)
		status = run(p, &err);
	if (status != MD_OK)
		fprintf(stderr, "llama-engine: %s\n", err.message);
	fflush(stdout);
	/* a server may be told to end while its memory is swapped out: any call of the driver would wait for it */
	if (status == MD_OK && p->options.serve)
		exit(0);
	finish(p);
	return status == MD_OK ? 0 : status == MD_ERR_INVALID ? 2 : 1;
}
