/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of the reference engine. */
#ifndef LLAMA_OPTIONS_H
#define LLAMA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define OPTIONS_MAX_BATCHES 512
#define OPTIONS_MAX_TEXTS 1024

/* Of an option that may be repeated, in order. */
struct llama_texts {
	const char *all[OPTIONS_MAX_TEXTS];
	size_t count;
};

struct llama_options {
	const char *model, *recipe, *report;
	const char *share;         /* the name under which other processes may have the same weights; NULL: none */
	const char *check_adapter; /* an adapter to be read instead of anything else */
	const char *serve, *served_name; /* serve: ADDRESS:PORT; NULL: no server */
	uint64_t seed, sample_seed;
	unsigned batches[OPTIONS_MAX_BATCHES]; /* ascending, without repetition */
	size_t batch_count;
	struct llama_texts prompts;
	struct llama_texts loras;    /* NAME=PATH */
	struct llama_texts adapters; /* of the prompts: NAME, PATH or "-" */
	int max_context;             /* 0: the model's, at most 2048 */
	int tokens, kv_blocks, repeat, device, bench_replay, bench_background, max_waiting;
	int load_threads; /* 0: loader_default_threads */
	int lora_slots, max_lora_rank;
	uint64_t lora_bytes;   /* of host memory for adapters */
	uint64_t max_kv_bytes; /* 0: no cap (256 MiB on hostcuda) */
	double temperature, utilization;
	bool raw, no_graphs, check, reference, quiet, help;
};

enum md_status llama_options_parse(struct llama_options *options, int argc, char **argv, struct md_error *err);
extern const char llama_options_usage[];

#endif
