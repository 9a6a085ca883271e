/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-inspect for people: an artifact's summary. */
#include <inttypes.h>

#include "base/plain.h"
#include "simulator/report/table.h"
#include "format/checks.h"
#include "tools/inspect.h"

void md_inspect_print_facts(const struct md_fingerprint *machine, FILE *out)
{
	for (uint32_t i = 0; i < machine->fact_count; i++)
		md_plain_line(out, "fact     %s %s", machine->facts[i].name, machine->facts[i].value);
	for (uint32_t i = 0; !machine->fact_count && i < machine->arguments.count; i++)
		md_plain_line(out, "argument %" PRIu32 " %s", i, machine->arguments.items[i].text);
	for (uint32_t i = 0; !machine->fact_count && i < machine->vary.count; i++)
		md_plain_line(out, "may vary %s", machine->vary.items[i].text);
}

static void print_limits(const struct md_fingerprint *machine, FILE *out)
{
	const char *before = "limits  ";
	for (unsigned i = 0; i < MD_LIMITS; i++) {
		if (!machine->limits[i])
			continue;
		fprintf(out, "%s %s %" PRIu64, before, md_limit_name(i), machine->limits[i]);
		before = ",";
	}
	if (*before == ',')
		fputc('\n', out);
}

static void print_provenance(const char *path, const struct md_artifact *artifact, FILE *out)
{
	const struct md_provenance *from = &artifact->provenance;
	const struct md_fingerprint *machine = &artifact->fingerprint;
	char memory[MD_TABLE_BYTES_TEXT];
	struct md_error lacks = {0};
	md_plain_line(out, "%s: %" PRIu32 " graphs, %" PRIu64 " nodes, %" PRIu32 " left out", path,
		      artifact->graph_count, md_inspect_total_nodes(artifact), artifact->refusal_count);
	md_plain_line(out, "made     %s by medusa %s from %" PRIu32 " capture%s", from->created ? from->created : "?",
		      from->tool_version ? from->tool_version : "?", from->capture_count,
		      from->capture_count == 1 ? "" : "s");
	md_plain_line(out, "command  %s", from->command ? from->command : "");
	if (from->verification)
		md_plain_line(out, "verified %s", from->verification);
	if (from->scratch_addresses)
		md_plain_line(out,
			      "relies   on the engine's statement that only graphs use certain memory "
			      "(medusa_graph_scratch), where %" PRIu64
			      " addresses that were given to kernels outside of graphs were ignored",
			      from->scratch_addresses);
	if (md_checks_require(artifact, &lacks) != MD_OK)
		md_plain_line(out, "NOT RESTORED: %s", lacks.message);
	md_plain_line(out, "device   %s, compute %d.%d, %d multiprocessors, %s, driver %d", machine->device_name,
		      machine->compute_major, machine->compute_minor, machine->multiprocessors,
		      md_table_format_bytes(machine->device_memory, memory), machine->driver_version);
	print_limits(machine, out);
	md_inspect_print_facts(machine, out);
}

static bool is_first_of_group(const struct md_artifact *artifact, uint32_t index)
{
	for (uint32_t i = 0; i < index; i++)
		if (artifact->graphs[i].group == artifact->graphs[index].group)
			return false;
	return artifact->graphs[index].group != 0;
}

/* Values go on from one to another in memory that nobody bound. */
static void print_groups(const struct md_artifact *artifact, FILE *out)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		const struct md_artifact_graph *graph = &artifact->graphs[i];
		if (!is_first_of_group(artifact, i))
			continue;
		md_plain_print(out, "  %s/%" PRIu32 " is restored together with", graph->label, graph->batch);
		for (uint32_t k = i + 1; k < artifact->graph_count; k++)
			if (artifact->graphs[k].group == graph->group)
				md_plain_print(out, " %s/%" PRIu32, artifact->graphs[k].label,
					       artifact->graphs[k].batch);
		fputc('\n', out);
	}
}

static void print_graphs(const struct md_artifact *artifact, FILE *out)
{
	struct md_table table;
	uint64_t bytes = 0, scalars = 0;
	fprintf(out, "\ngraphs\n");
	md_table_init(&table, "LABEL|>BATCH|>NODES|>EDGES|>POINTERS|>CONSTANT WORDS|>POINTER WORDS|>NOISE WORDS|"
			      ">UNSET IN STRUCTS|>OUTPUTS|>NOTE|PROOF");
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		const struct md_artifact_graph *graph = &artifact->graphs[i];
		char proof[MD_PROOF_TEXT];
		struct md_unset unset = {0};
		if (md_artifact_unset(artifact, graph, &unset, NULL) == MD_OK)
			bytes += unset.struct_bytes;
		scalars += unset.scalars;
		md_table_cell(&table, "%s", graph->label);
		md_table_cell(&table, "%" PRIu32, graph->batch);
		md_table_cell(&table, "%" PRIu32, graph->node_count);
		md_table_cell(&table, "%" PRIu32, graph->edge_count);
		md_table_cell(&table, "%" PRIu32, graph->pointer_count);
		md_table_cell(&table, "%" PRIu64, graph->constant_words);
		md_table_cell(&table, "%" PRIu64, graph->pointer_words);
		md_table_cell(&table, "%" PRIu64, graph->noise_words);
		md_table_bytes(&table, unset.struct_bytes);
		md_table_cell(&table, "%" PRIu32, graph->output_count);
		md_table_bytes(&table, graph->note_size);
		md_table_cell(&table, "%s", md_inspect_proof(graph, proof));
	}
	md_table_print(&table, 2, out);
	print_groups(artifact, out);
	if (bytes)
		fprintf(out,
			"  %" PRIu64
			" bytes of struct parameters differ from process to process and count as unset: padding, as\n"
			"  far as replays show; a member that matters for other inputs would be zero at a cold start\n",
			bytes);
	if (scalars)
		fprintf(out,
			"  %" PRIu64 " parameters are stale addresses or values of the process that were accepted: "
			"zero at a cold start\n",
			scalars);
}

static void print_refusals(const struct md_artifact *artifact, FILE *out)
{
	if (!artifact->refusal_count)
		return;
	fprintf(out, "\nleft out\n");
	for (uint32_t i = 0; i < artifact->refusal_count; i++)
		md_plain_line(out, "  %s/%" PRIu32 ": %s",
			      artifact->refusals[i].label ? artifact->refusals[i].label : "(no label)",
			      artifact->refusals[i].batch, artifact->refusals[i].why);
}

static void print_kernels(const struct md_artifact *artifact, FILE *out)
{
	struct md_table table;
	fprintf(out, "\nkernels\n");
	md_table_init(&table, "KERNEL|>PARAMETERS|>MAX DYNAMIC SHARED|>IMAGE");
	for (uint32_t i = 0; i < artifact->kernel_count; i++) {
		const struct md_kernel *kernel = &artifact->kernels[i];
		md_table_cell(&table, "%s", kernel->name);
		md_table_cell(&table, "%" PRIu32, kernel->param_count);
		md_table_cell(&table, "%" PRId32, kernel->state.max_dynamic_shared_bytes);
		if (kernel->image == MD_NONE)
			md_table_cell(&table, "not seen");
		else
			md_table_cell(&table, "%" PRIu32, kernel->image);
	}
	md_table_print(&table, 2, out);
}

static void print_images(const struct md_artifact *artifact, FILE *out)
{
	static const char *const kinds[] = {"?", "ELF", "fat binary", "PTX"};
	struct md_table table;
	fprintf(out, "\nimages\n");
	md_table_init(&table, ">INDEX|HASH|KIND|>SIZE|FROM");
	for (uint32_t i = 0; i < artifact->image_count; i++) {
		const struct md_image *image = &artifact->images[i];
		char hash[MD_HASH_TEXT_BYTES];
		md_hash_format(&image->hash, hash);
		md_table_cell(&table, "%" PRIu32, i);
		md_table_cell(&table, "%s", hash);
		md_table_cell(&table, "%s", kinds[(unsigned)image->kind < 4 ? image->kind : 0]);
		md_table_bytes(&table, image->size);
		if (image->value_count)
			md_table_cell(&table, "%s, with the values of %" PRIu32 " variables that the engine writes",
				      image->path && !image->data ? image->path : md_inspect_image_source(image),
				      image->value_count);
		else if (!image->data && image->path)
			md_table_cell(&table, "%s at offset %" PRIu64, image->path, image->file_offset);
		else if (image->variable)
			md_table_cell(&table, "the engine, which writes its variable %s", image->variable);
		else
			md_table_cell(&table, "%s", md_inspect_image_source(image));
	}
	md_table_print(&table, 2, out);
}

static void print_memory(const struct md_artifact *artifact, FILE *out)
{
	struct md_table table;
	char text[MD_TABLE_BYTES_TEXT];
	uint32_t private = 0, compared = 0;
	uint64_t saved = 0;
	fprintf(out, "\nbindings\n");
	md_table_init(&table, "NAME|ROLE|>SIZE|HASH|IN THE SECOND CAPTURE");
	for (uint32_t i = 0; i < artifact->binding_count; i++) {
		const struct md_binding *binding = &artifact->bindings[i];
		char hash[MD_HASH_TEXT_BYTES] = "";
		if (binding->hashed)
			md_hash_format(&binding->hash, hash);
		md_table_cell(&table, "%s", binding->name);
		md_table_cell(&table, "%s", md_inspect_role(binding->role));
		md_table_bytes(&table, binding->size);
		md_table_cell(&table, "%s", hash);
		md_table_cell(&table, "%s",
			      binding->varied   ? "another"
			      : binding->hashed ? "the same, or not known"
						: "");
	}
	md_table_print(&table, 2, out);
	if (artifact->request_count)
		fprintf(out, "  bound by order, size and place of the first %" PRIu32 " allocations\n",
			artifact->request_count);
	for (uint32_t i = 0; i < artifact->alloc_count; i++)
	private += artifact->allocs[i].class == MD_CLASS_PRIVATE;
	for (uint32_t i = 0; i < artifact->content_count; i++) {
		saved += artifact->contents[i].size;
		compared += artifact->contents[i].compared;
	}
	fputc('\n', out);
	md_plain_print(out, "private memory  %s in %" PRIu32 " allocations",
		       md_table_format_bytes(artifact->arena_size, text), private);
	md_plain_line(out, ", permanent contents %s in %" PRIu32 " places", md_table_format_bytes(saved, text),
		      artifact->content_count);
	if (artifact->content_count)
		fprintf(out,
			"                contents of %" PRIu32
			" places were the same in both captures; they count as made of\n"
			"                every binding with a hash, unless that was another in the second capture\n",
			compared);
}

static void print_kv(const struct md_kv *kv, FILE *out)
{
	char text[4][MD_TABLE_BYTES_TEXT];
	if (!kv->present) {
		fprintf(out, "KV capacity     not measured\n");
		return;
	}
	md_plain_line(
	    out, "KV capacity     %s in %" PRIu64 " blocks of %" PRIu64 " bytes (free before %s, peak %s, graphs %s)",
	    md_table_format_bytes(kv->kv_bytes, text[0]), kv->blocks, kv->block_bytes,
	    md_table_format_bytes(kv->baseline_free, text[1]), md_table_format_bytes(kv->peak, text[2]),
	    md_table_format_bytes(kv->graph_bytes, text[3]));
}

static void print_caches(const struct md_caches *caches, FILE *out)
{
	struct md_table table;
	if (!caches->folder_count)
		return;
	fprintf(out, "\ncaches\n");
	md_table_init(&table, "NAME|INSIDE|>FILES|>SIZE|CAPTURED IN");
	for (uint32_t i = 0; i < caches->folder_count; i++) {
		const struct md_cache_folder *folder = &caches->folders[i];
		md_table_cell(&table, "%s", folder->name);
		md_table_cell(&table, "%s", folder->inside);
		md_table_cell(&table, "%" PRIu32, folder->file_count);
		md_table_bytes(&table, md_cache_folder_bytes(folder));
		md_table_cell(&table, "%s", folder->path);
	}
	md_table_print(&table, 2, out);
}

static void print_sections(const struct md_artifact *artifact, const struct md_artifact_sizes *sizes, FILE *out)
{
	struct md_table table;
	char text[MD_TABLE_BYTES_TEXT];
	fputc('\n', out);
	md_plain_line(out, "sections (file: %s, graphs and pointers: %.1f bytes a node)",
		      md_table_format_bytes(sizes->file, text), md_inspect_bytes_per_node(artifact, sizes));
	md_table_init(&table, "SECTION|>STORED|>RAW");
	for (uint32_t i = 0; i < sizes->section_count; i++) {
		md_table_cell(&table, "%.16s", sizes->sections[i].name);
		md_table_cell(&table, "%" PRIu64, sizes->sections[i].stored);
		md_table_cell(&table, "%" PRIu64, sizes->sections[i].raw);
	}
	md_table_print(&table, 2, out);
}

static void print_stages(const struct md_provenance *provenance, FILE *out)
{
	if (!provenance->stage_count)
		return;
	fprintf(out, "\nstages of the captured start\n");
	for (uint32_t i = 0; i < provenance->stage_count; i++)
		md_plain_line(out, "  %-16.64s %10.3f ms", provenance->stages[i].name,
			      (double)provenance->stages[i].ns / 1e6);
}

void md_inspect_print(const char *path, const struct md_artifact *artifact, const struct md_artifact_sizes *sizes,
		      FILE *out)
{
	print_provenance(path, artifact, out);
	print_graphs(artifact, out);
	print_refusals(artifact, out);
	print_kernels(artifact, out);
	print_images(artifact, out);
	print_memory(artifact, out);
	print_kv(&artifact->kv, out);
	print_caches(&artifact->caches, out);
	print_sections(artifact, sizes, out);
	print_stages(&artifact->provenance, out);
}
