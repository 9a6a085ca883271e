/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-inspect of a trace: what one warm start did, in sums. */
#include <inttypes.h>

#include "base/plain.h"
#include "simulator/report/table.h"
#include "tools/inspect.h"

#define FAMILIES 10

struct sum {
	uint64_t count, bytes, live;
};

static void sum_families(const struct md_trace *trace, struct sum sums[FAMILIES])
{
	for (uint32_t i = 0; i < trace->alloc_count; i++) {
		const struct md_trace_alloc *alloc = &trace->allocs[i];
		struct sum *sum = &sums[(unsigned)alloc->family < FAMILIES ? alloc->family : 0];
		sum->count++;
		sum->bytes += alloc->size;
		sum->live += alloc->died == UINT64_MAX;
	}
}

static void print_families(const struct md_trace *trace, FILE *out)
{
	struct sum sums[FAMILIES] = {{0, 0, 0}};
	struct md_table table;
	sum_families(trace, sums);
	fprintf(out, "\nallocations\n");
	md_table_init(&table, "FAMILY|>COUNT|>LIVE AT THE END|>BYTES");
	for (unsigned f = 0; f < FAMILIES; f++) {
		if (!sums[f].count)
			continue;
		md_table_cell(&table, "%s", md_inspect_family(f));
		md_table_cell(&table, "%" PRIu64, sums[f].count);
		md_table_cell(&table, "%" PRIu64, sums[f].live);
		md_table_bytes(&table, sums[f].bytes);
	}
	md_table_print(&table, 2, out);
}

static const char *probe_word(enum md_probe_result probe)
{
	static const char *const words[] = {"not tested", "clean", "contents saved", "failed"};
	return (unsigned)probe < 4 ? words[probe] : "unknown";
}

static const char *why_left_out(const struct md_trace *trace, const struct md_trace_graph *graph)
{
	if (!graph->label && md_trace_labelled(trace))
		return "left out: the engine labels others";
	return graph->refused ? graph->refused : graph->probe_why ? graph->probe_why : "";
}

static void print_graphs(const struct md_trace *trace, FILE *out)
{
	struct md_table table;
	fprintf(out, "\ngraphs\n");
	md_table_init(&table, "LABEL|>BATCH|>NODES|>EDGES|>OUTPUTS|>NOTE|REPLAY|REFUSED");
	for (uint32_t i = 0; i < trace->graph_count; i++) {
		const struct md_trace_graph *graph = &trace->graphs[i];
		md_table_cell(&table, "%s", graph->label ? graph->label : "(none)");
		md_table_cell(&table, "%" PRIu32, graph->batch);
		md_table_cell(&table, "%" PRIu32, graph->node_count);
		md_table_cell(&table, "%" PRIu32, graph->edge_count);
		md_table_cell(&table, "%" PRIu32, graph->output_count);
		md_table_bytes(&table, graph->note_size);
		md_table_cell(&table, "%s", probe_word(graph->probe));
		md_table_cell(&table, "%s", why_left_out(trace, graph));
	}
	md_table_print(&table, 2, out);
}

static void print_binds(const struct md_trace *trace, FILE *out)
{
	struct md_table table;
	fprintf(out, "\nbindings\n");
	md_table_init(&table, "NAME|ROLE|>SIZE");
	for (uint32_t i = 0; i < trace->bind_count; i++) {
		md_table_cell(&table, "%s", trace->binds[i].name);
		md_table_cell(&table, "%s", md_inspect_role(trace->binds[i].role));
		md_table_bytes(&table, trace->binds[i].size);
	}
	md_table_print(&table, 2, out);
}

static const char *const transfer_words[MD_TRANSFER_KINDS] = {
    [MD_TRANSFER_TO_DEVICE] = "to GPU",      [MD_TRANSFER_TO_HOST] = "to host", [MD_TRANSFER_WITHIN_DEVICE] = "copies",
    [MD_TRANSFER_ANY] = "copies (cuMemcpy)", [MD_TRANSFER_SET] = "sets",
};

void md_inspect_trace(const char *path, const struct md_trace *trace, FILE *out)
{
	uint64_t launches = 0, nodes = 0, saved = 0;
	char text[MD_TABLE_BYTES_TEXT];
	for (uint32_t i = 0; trace->launches && i < trace->kernel_count; i++)
		launches += trace->launches[i];
	for (uint32_t i = 0; i < trace->graph_count; i++)
		nodes += trace->graphs[i].node_count;
	for (uint32_t i = 0; i < trace->content_count; i++)
		saved += trace->contents[i].size;
	md_plain_line(out, "%s: trace of process %" PRIu32 "%s, %" PRIu32 " graphs, %" PRIu64 " nodes", path,
		      trace->process_id, trace->complete ? "" : " (incomplete: the process was killed)",
		      trace->graph_count, nodes);
	md_plain_line(out, "command  %s", trace->command ? trace->command : "");
	md_plain_line(out, "device   %s, driver %d", trace->fingerprint.device_name, trace->fingerprint.driver_version);
	md_inspect_print_facts(&trace->fingerprint, out);
	fprintf(out, "kernels  %" PRIu32 " from %" PRIu32 " images, %" PRIu64 " launches outside of capture\n",
		trace->kernel_count, trace->image_count, launches);
	for (unsigned i = 0; i < MD_TRANSFER_KINDS; i++)
		if (trace->transfers[i].count)
			md_plain_line(out, "%-8s %" PRIu64 " outside of capture, %s", transfer_words[i],
				      trace->transfers[i].count,
				      md_table_format_bytes(trace->transfers[i].bytes, text));
	md_plain_line(out, "contents %s in %" PRIu32 " places", md_table_format_bytes(saved, text),
		      trace->content_count);
	print_families(trace, out);
	print_graphs(trace, out);
	print_binds(trace, out);
	if (trace->stage_count)
		fprintf(out, "\nstages\n");
	for (uint32_t i = 0; i < trace->stage_count; i++)
		md_plain_line(out, "  %-16.64s %10.3f ms", trace->stages[i].name, (double)trace->stages[i].ns / 1e6);
}

void md_inspect_trace_json(const char *path, const struct md_trace *trace, FILE *out)
{
	struct sum sums[FAMILIES] = {{0, 0, 0}};
	struct md_json json;
	sum_families(trace, sums);
	md_json_init(&json, out);
	md_json_object(&json, NULL);
	md_json_text(&json, "kind", "trace");
	md_json_text(&json, "path", path);
	md_json_bool(&json, "complete", trace->complete);
	md_json_text(&json, "command", trace->command);
	md_json_text(&json, "device_name", trace->fingerprint.device_name);
	md_inspect_json_facts(&json, &trace->fingerprint);
	md_json_number(&json, "kernels", trace->kernel_count);
	md_json_number(&json, "images", trace->image_count);
	md_json_list(&json, "allocations");
	for (unsigned f = 0; f < FAMILIES; f++) {
		if (!sums[f].count)
			continue;
		md_json_object(&json, NULL);
		md_json_text(&json, "family", md_inspect_family(f));
		md_json_number(&json, "count", sums[f].count);
		md_json_number(&json, "live", sums[f].live);
		md_json_number(&json, "bytes", sums[f].bytes);
		md_json_end(&json);
	}
	md_json_end(&json);
	md_json_list(&json, "graphs");
	for (uint32_t i = 0; i < trace->graph_count; i++) {
		md_json_object(&json, NULL);
		md_json_text(&json, "label", trace->graphs[i].label);
		md_json_number(&json, "batch", trace->graphs[i].batch);
		md_json_number(&json, "nodes", trace->graphs[i].node_count);
		md_json_number(&json, "edges", trace->graphs[i].edge_count);
		md_json_number(&json, "outputs", trace->graphs[i].output_count);
		md_json_number(&json, "note_bytes", trace->graphs[i].note_size);
		md_json_text(&json, "replay", probe_word(trace->graphs[i].probe));
		md_json_text(&json, "refused", trace->graphs[i].refused);
		md_json_bool(&json, "left_out", !trace->graphs[i].label && md_trace_labelled(trace));
		md_json_end(&json);
	}
	md_json_end(&json);
	md_json_list(&json, "bindings");
	for (uint32_t i = 0; i < trace->bind_count; i++) {
		md_json_object(&json, NULL);
		md_json_text(&json, "name", trace->binds[i].name);
		md_json_text(&json, "role", md_inspect_role(trace->binds[i].role));
		md_json_number(&json, "size", trace->binds[i].size);
		md_json_end(&json);
	}
	md_json_end(&json);
	md_json_end(&json);
}
