/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of the reference engine: one table of options. */
#include "models/llama/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/llama/adapters/adapter.h"

const char llama_options_usage[] =
    "usage: llama-engine (--model FILE.gguf | --recipe FILE.yaml [--seed N]) [options]\n"
    "  --prompt TEXT        may be repeated: prompts decode together; a recipe's prompts are random tokens\n"
    "  --tokens N           new tokens for each prompt (default 32)\n"
    "  --batches 1,2,4,8    decode batch sizes that get a graph\n"
    "  --max-context N      positions of one sequence (default: the model's, at most 2048)\n"
    "  --temperature T      0 takes the likeliest token (default)\n"
    "  --sample-seed S      seed of the draws\n"
    "  --serve ADDRESS:PORT answer requests of OpenAI's API instead of prompts; --temperature is that of requests\n"
    "                       without one (port 0: any; the port is printed)\n"
    "  --served-name NAME   name of the model there (default: the file's, without its ending)\n"
    "  --max-waiting N      requests without a first token; others are refused with 429 (default 256)\n"
    "  --raw                no chat template around the prompt\n"
    "  --kv-blocks N        KV blocks, instead of measuring the free memory\n"
    "  --max-kv-bytes N     at most so many bytes of KV cache (default on hostcuda: 268435456)\n"
    "  --utilization U      part of the device's memory to use, 0 to 1 (default 0.9)\n"
    "  --load-threads N     threads that read the weights of --model (default: the processors that may be used, at "
    "most 8)\n"
    "  --share NAME         have the weights in common with other engines of this name (medusa-backbone)\n"
    "  --check-adapter PATH read a LoRA adapter (a folder of PEFT's, or a GGUF file) for this model, say what is in "
    "it,\n"
    "                       and end; needs no device\n"
    "  --lora-slots N       LoRA adapters that can be used at the same time (default 0: none)\n"
    "  --max-lora-rank R    of an adapter, 1 to 64 (default 16)\n"
    "  --lora-bytes N       host memory for adapters that are served (default 1073741824)\n"
    "  --lora NAME=PATH     may be repeated: an adapter, a PEFT folder or a GGUF file, that is there from the start\n"
    "  --adapter NAME|PATH  of all prompts; or given once for each prompt, with - for none\n"
    "  --no-graphs          decode eagerly\n"
    "  --check              compare every graph with eager, bit by bit; fails if one differs\n"
    "  --reference          compare all logits of the prompts with arithmetic in double precision on the host, which "
    "is\n"
    "                       slow; with an adapter also with one that is merged into the weights\n"
    "  --bench-replay N     median time of N replays of each graph, for the report\n"
    "  --bench-background N replay the first graph while the others are restored, then N times alone\n"
    "  --repeat N           generate N times\n"
    "  --report FILE.json   write times, graphs and outputs\n"
    "  --device N           device ordinal\n"
    "  --quiet              no progress on stderr\n";

enum kind { TEXT, FLAG, INTEGER, BIG, REAL, BATCHES, TEXTS };

struct option {
	const char *name;
	enum kind kind;
	size_t offset;
	double low, high;
};

#define OPTION(name, kind, field, low, high)                                                                           \
	{                                                                                                              \
		name, kind, offsetof(struct llama_options, field), low, high                                           \
	}

static const struct option options_table[] = {
    OPTION("--model", TEXT, model, 0, 0),
    OPTION("--recipe", TEXT, recipe, 0, 0),
    OPTION("--report", TEXT, report, 0, 0),
    OPTION("--serve", TEXT, serve, 0, 0),
    OPTION("--share", TEXT, share, 0, 0),
    OPTION("--check-adapter", TEXT, check_adapter, 0, 0),
    OPTION("--served-name", TEXT, served_name, 0, 0),
    OPTION("--seed", BIG, seed, 0, 0),
    OPTION("--sample-seed", BIG, sample_seed, 0, 0),
    OPTION("--batches", BATCHES, batches, 1, 4096),
    OPTION("--prompt", TEXTS, prompts, 0, 0),
    OPTION("--lora", TEXTS, loras, 0, 0),
    OPTION("--adapter", TEXTS, adapters, 0, 0),
    OPTION("--lora-slots", INTEGER, lora_slots, 0, 1024),
    OPTION("--max-lora-rank", INTEGER, max_lora_rank, 1, LORA_MAX_RANK),
    OPTION("--lora-bytes", BIG, lora_bytes, 0, 0),
    OPTION("--max-context", INTEGER, max_context, 16, 1048576),
    OPTION("--tokens", INTEGER, tokens, 0, 1048576),
    OPTION("--kv-blocks", INTEGER, kv_blocks, 2, 1 << 24),
    OPTION("--max-waiting", INTEGER, max_waiting, 1, 1000000),
    OPTION("--load-threads", INTEGER, load_threads, 1, 64),
    OPTION("--repeat", INTEGER, repeat, 1, 100000),
    OPTION("--device", INTEGER, device, 0, 1024),
    OPTION("--bench-replay", INTEGER, bench_replay, 1, 100000),
    OPTION("--bench-background", INTEGER, bench_background, 1, 100000),
    OPTION("--max-kv-bytes", BIG, max_kv_bytes, 0, 0),
    OPTION("--temperature", REAL, temperature, 0, 100),
    OPTION("--utilization", REAL, utilization, 0.01, 1),
    OPTION("--raw", FLAG, raw, 0, 0),
    OPTION("--no-graphs", FLAG, no_graphs, 0, 0),
    OPTION("--check", FLAG, check, 0, 0),
    OPTION("--reference", FLAG, reference, 0, 0),
    OPTION("--quiet", FLAG, quiet, 0, 0),
    OPTION("--help", FLAG, help, 0, 0),
};

static const struct option *find_option(const char *name)
{
	for (size_t i = 0; i < sizeof(options_table) / sizeof(options_table[0]); i++)
		if (!strcmp(options_table[i].name, name))
			return &options_table[i];
	return NULL;
}

static enum md_status parse_integer(const struct option *option, const char *text, int *out, struct md_error *err)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno || *end || end == text || (double)value < option->low || (double)value > option->high)
		return md_error_set(err, MD_ERR_INVALID, "%s: \"%s\" is not an integer from %g to %g", option->name,
				    text, option->low, option->high);
	*out = (int)value;
	return MD_OK;
}

static enum md_status parse_big(const struct option *option, const char *text, uint64_t *out, struct md_error *err)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno || *end || end == text || *text == '-')
		return md_error_set(err, MD_ERR_INVALID, "%s: \"%s\" is not a number", option->name, text);
	*out = value;
	return MD_OK;
}

static enum md_status parse_real(const struct option *option, const char *text, double *out, struct md_error *err)
{
	char *end;
	double value = strtod(text, &end);
	if (*end || end == text || !(value >= option->low && value <= option->high))
		return md_error_set(err, MD_ERR_INVALID, "%s: \"%s\" is not a number from %g to %g", option->name, text,
				    option->low, option->high);
	*out = value;
	return MD_OK;
}

static int compare_unsigned(const void *a, const void *b)
{
	unsigned left = *(const unsigned *)a, right = *(const unsigned *)b;
	return (left > right) - (left < right);
}

static void sort_batches(struct llama_options *options)
{
	qsort(options->batches, options->batch_count, sizeof(options->batches[0]), compare_unsigned);
	size_t kept = 0;
	for (size_t i = 0; i < options->batch_count; i++)
		if (!kept || options->batches[i] != options->batches[kept - 1])
			options->batches[kept++] = options->batches[i];
	options->batch_count = kept;
}

static enum md_status parse_batches(const struct option *option, const char *text, struct llama_options *options,
				    struct md_error *err)
{
	options->batch_count = 0;
	while (*text) {
		char number[16];
		size_t length = strcspn(text, ",");
		int value = 0;
		if (length >= sizeof(number) || options->batch_count == OPTIONS_MAX_BATCHES)
			return md_error_set(err, MD_ERR_INVALID, "%s: at most %d numbers", option->name,
					    OPTIONS_MAX_BATCHES);
		memcpy(number, text, length);
		number[length] = 0;
		MD_FORWARD(parse_integer(option, number, &value, err));
		options->batches[options->batch_count++] = (unsigned)value;
		text += length + (text[length] == ',');
	}
	if (!options->batch_count)
		return md_error_set(err, MD_ERR_INVALID, "%s: no number", option->name);
	sort_batches(options);
	return MD_OK;
}

static enum md_status add_text(const struct option *option, const char *text, struct llama_texts *texts,
			       struct md_error *err)
{
	if (texts->count == OPTIONS_MAX_TEXTS)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%s: at most %d", option->name, OPTIONS_MAX_TEXTS);
	texts->all[texts->count++] = text;
	return MD_OK;
}

static enum md_status parse_value(const struct option *option, const char *text, struct llama_options *options,
				  struct md_error *err)
{
	void *slot = (char *)options + option->offset;
	switch (option->kind) {
	case TEXT:
		*(const char **)slot = text;
		return MD_OK;
	case INTEGER:
		return parse_integer(option, text, slot, err);
	case BIG:
		return parse_big(option, text, slot, err);
	case REAL:
		return parse_real(option, text, slot, err);
	case BATCHES:
		return parse_batches(option, text, options, err);
	default:
		return add_text(option, text, slot, err);
	}
}

static enum md_status check_adapters(const struct llama_options *o, struct md_error *err)
{
	if (o->lora_slots)
		return MD_OK;
	if (!o->loras.count && !o->adapters.count)
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "%s: an adapter needs a place, --lora-slots N",
			    o->loras.count ? "--lora" : "--adapter");
}

enum md_status llama_options_parse(struct llama_options *options, int argc, char **argv, struct md_error *err)
{
	*options = (struct llama_options){.batches = {1, 2, 4, 8},
					  .batch_count = 4,
					  .tokens = 32,
					  .repeat = 1,
					  .max_waiting = 256,
					  .max_lora_rank = 16,
					  .lora_bytes = 1ull << 30,
					  .utilization = 0.9,
					  .seed = 1,
					  .sample_seed = 1};
	for (int i = 1; i < argc; i++) {
		const struct option *option = find_option(argv[i]);
		if (!option)
			return md_error_set(err, MD_ERR_INVALID, "unknown option %s (--help lists them)", argv[i]);
		if (option->kind == FLAG) {
			*(bool *)((char *)options + option->offset) = true;
			continue;
		}
		if (++i == argc)
			return md_error_set(err, MD_ERR_INVALID, "%s needs a value", option->name);
		MD_FORWARD(parse_value(option, argv[i], options, err));
	}
	if (!options->help && !options->model == !options->recipe)
		return md_error_set(err, MD_ERR_INVALID, "give either --model FILE.gguf or --recipe FILE.yaml");
	if (options->check_adapter && (options->prompts.count || options->report || options->serve))
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "--check-adapter reads an adapter alone: neither --prompt nor --report nor --serve");
	if (options->serve && (options->prompts.count || options->report))
		return md_error_set(err, MD_ERR_INVALID, "--serve takes requests: neither --prompt nor --report");
	if (options->serve && options->adapters.count)
		return md_error_set(err, MD_ERR_INVALID,
				    "--serve takes requests: --lora names adapters, not --adapter");
	return check_adapters(options, err);
}
