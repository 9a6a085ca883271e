/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the engine's JSON report. */
#include "models/llama/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "models/llama/integration.h"
#include "models/llama/unicode.h"

const char *const llama_stage_names[STAGE_COUNT] = {
    [STAGE_CONTEXT] = "context", [STAGE_ENGINE] = "engine",           [STAGE_WEIGHTS] = "weights",
    [STAGE_KV] = "kv",           [STAGE_RESTORE] = "restore_wait",    [STAGE_WARMUP] = "warmup",
    [STAGE_CAPTURE] = "capture", [STAGE_INSTANTIATE] = "instantiate", [STAGE_FIRST_GRAPH] = "first_graph_ready",
    [STAGE_READY] = "ready",     [STAGE_PREFILL] = "prefill",         [STAGE_FIRST_TOKEN] = "first_token",
    [STAGE_DECODE] = "decode",
};

/* A text may end inside a character: what is no UTF-8 becomes U+FFFD. */
static void put_string(FILE *file, const char *text)
{
	if (!text) {
		fputs("null", file);
		return;
	}
	fputc('"', file);
	for (size_t left = strlen(text); left;) {
		uint32_t code;
		size_t length = unicode_decode(text, left, &code);
		if (code == UNICODE_INVALID)
			fputs("\\ufffd", file);
		else if (code < 0x20 || code == 0x7f)
			fprintf(file, "\\u%04x", code);
		else if (code == '"' || code == '\\')
			fprintf(file, "\\%c", (int)code);
		else
			fwrite(text, 1, length, file);
		text += length;
		left -= length;
	}
	fputc('"', file);
}

static void put_stages(FILE *file, const struct llama_report *report)
{
	fputs("  \"stages_ms\": { ", file);
	for (int i = 0; i < STAGE_COUNT; i++)
		fprintf(file, "%s\"%s\": %.3f", i ? ", " : "", llama_stage_names[i], (double)report->stage_ns[i] / 1e6);
	fputs(" },\n", file);
}

static void put_load(FILE *file, const struct loader_report *load)
{
	if (!load->threads)
		return;
	fprintf(file,
		"  \"load\": { \"file_bytes\": %llu, \"ms\": %.3f, \"gb_per_s\": %.3f, \"threads\": %u, "
		"\"staging_bytes\": %zu, \"page_locked\": %s },\n",
		(unsigned long long)load->file_bytes, (double)load->ns / 1e6,
		(double)load->file_bytes / (double)load->ns, load->threads, load->staging_bytes,
		load->page_locked ? "true" : "false");
}

static void put_graphs(FILE *file, const struct llama_graphs *graphs)
{
	size_t restored = 0;
	for (size_t i = 0; graphs && i < graphs->count; i++)
		restored += graphs->graphs[i].restored;
	fprintf(file, "  \"label\": \"%s\",\n  \"graphs_restored\": %zu,\n  \"graphs_live\": %zu,\n  \"graphs\": [",
		graphs ? graphs->label : "", restored, graphs ? graphs->count - restored : 0);
	for (size_t i = 0; graphs && i < graphs->count; i++) {
		const struct llama_graph *graph = &graphs->graphs[i];
		fprintf(file, "%s\n    { \"batch\": %u, \"source\": \"%s\"", i ? "," : "", graph->batch,
			graph->restored ? "restored" : "live");
		if (graph->nodes)
			fprintf(file, ", \"nodes\": %zu", graph->nodes);
		if (graph->replay_ns)
			fprintf(file, ", \"replay_ms\": %.4f", (double)graph->replay_ns / 1e6);
		if (graph->replay_live_ns)
			fprintf(file, ", \"replay_live_ms\": %.4f", (double)graph->replay_live_ns / 1e6);
		fputs(", \"reason\": ", file);
		put_string(file, graph->reason);
		fputs(" }", file);
	}
	fputs("\n  ],\n", file);
}

static void put_replays(FILE *file, const char *name, const struct llama_replays *replays)
{
	fprintf(
	    file,
	    "\"%s\": { \"count\": %zu, \"seconds\": %.3f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"longest_ms\": %.4f }",
	    name, replays->count, (double)replays->ns / 1e9, (double)replays->p50_ns / 1e6,
	    (double)replays->p99_ns / 1e6, (double)replays->longest_ns / 1e6);
}

static void put_background(FILE *file, const struct llama_background *background)
{
	if (!background->measured)
		return;
	fputs("  \"replay_background\": { ", file);
	put_replays(file, "during", &background->during);
	fputs(", ", file);
	put_replays(file, "alone", &background->alone);
	fputs(" },\n", file);
}

static void put_sequences(FILE *file, const struct llama_report *report)
{
	const struct llama_generation *generation = report->generation;
	fputs("  \"sequences\": [", file);
	for (size_t i = 0; i < generation->count; i++) {
		const struct llama_sequence *sequence = &generation->sequences[i];
		fprintf(file, "%s\n    { \"prompt_tokens\": %zu, \"tokens\": [", i ? "," : "", sequence->prompt.count);
		for (size_t t = 0; t < sequence->output.count; t++)
			fprintf(file, "%s%d", t ? ", " : "", sequence->output.tokens[t]);
		fputs("], \"text\": ", file);
		put_string(file, report->texts ? report->texts[i] : NULL);
		fputs(" }", file);
	}
	fputs("\n  ],\n", file);
}

static void put_report(FILE *file, const struct llama_report *report)
{
	const struct llama_generation *generation = report->generation;
	char hash[MD_HASH_TEXT_BYTES];
	md_hash_format(&generation->logits, hash);
	fprintf(file, "{\n  \"mode\": \"%s\",\n  \"device\": ", report->mode);
	put_string(file, report->device);
	fputs(",\n  \"model\": ", file);
	put_string(file, report->model);
	fputs(",\n", file);
	put_stages(file, report);
	fprintf(file, "  \"weight_bytes\": %llu,\n", (unsigned long long)report->weight_bytes);
	put_load(file, &report->load);
	fprintf(file, "  \"kv\": { \"blocks\": %d, \"bytes\": %llu, \"from_profile\": %s },\n", report->kv_blocks,
		(unsigned long long)report->kv_bytes, report->kv_from_profile ? "true" : "false");
	put_graphs(file, report->graphs);
	put_background(file, &report->background);
	if (report->checked)
		fprintf(file, "  \"check\": { \"equal\": %zu, \"of\": %zu },\n", report->check_equal,
			report->graphs->count);
	fprintf(
	    file,
	    "  \"tokens\": %zu,\n  \"decode_steps\": %zu,\n  \"graph_launches\": %zu,\n  \"logits_xxh3\": \"%s\",\n",
	    generation->tokens, generation->steps, generation->graph_launches, hash);
	put_sequences(file, report);
	fputs("  \"medusa\": ", file);
	integration_report(file);
	fputs("\n}\n", file);
}

enum md_status llama_report_write(const struct llama_report *report, const char *path, struct md_error *err)
{
	MD_AUTO_FILE FILE *file = md_file_open_output(path);
	if (!file)
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	put_report(file, report);
	if (ferror(file) || fflush(file))
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	return MD_OK;
}
