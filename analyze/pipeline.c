/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the passes of an analysis in order. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MD_LOG_DOMAIN "analyze"
#include "analyze/analysis.h"
#include "base/clock.h"
#include "base/log.h"

struct pass {
	const char *name;
	enum md_status (*run)(struct md_analysis *analysis, struct md_error *err);
};

static const struct pass passes[] = {
    {"environment", md_pass_environment}, /* the captures are comparable; their views */
    {"kernel", md_pass_kernel},           /* which kernels are the same */
    {"match", md_pass_match},             /* pairs of graphs that are equal but for parameters */
    {"handed", md_pass_handed},           /* graphs that hand values on through unbound memory */
    {"sequence", md_pass_sequence},       /* pairs of allocations and bindings, by the order of calls */
    {"evidence", md_pass_evidence},       /* the same, by the graphs' words */
    {"output", md_pass_output},           /* where the outputs of graphs lie */
    {"pointer", md_pass_pointer},         /* parameter words: constant, pointer, noise */
    {"variable", md_pass_variable},       /* variables of modules, and which of them replays write */
    {"content", md_pass_content},         /* the same for words inside permanent contents */
    {"table", md_pass_table},             /* memory beside contents, in tables that graphs only read */
    {"constant", md_pass_constant},       /* bindings from which contents may have been made */
    {"given", md_pass_given},             /* private memory that kernels outside of graphs are given */
    {"untouched", md_pass_untouched},     /* private memory that the engine uses, and no replay of the graph */
    {"tensor", md_pass_tensor},           /* which pointers are those of tensor maps */
    {"event", md_pass_event},             /* events that a restore can make anew */
    {"admit", md_pass_admit},             /* refuses graphs that could not be restored */
    {"order", md_pass_order},             /* how addresses compare, for bindings by sequence */
    {"neighbour", md_pass_neighbour},     /* bindings that must lie side by side */
    {"overlap", md_pass_overlap},         /* bindings that share memory */
    {"group", md_pass_group},             /* graphs that hand values on are restored together, or not at all */
    {"place", md_pass_place},             /* bindings and private memory */
    {"image", md_pass_image},             /* tables of kernels and images */
    {"emit", md_pass_emit},               /* graphs, refusals, provenance */
};

enum md_status md_analysis_no_memory(struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the analysis");
}

void md_pair_refuse(struct md_pair *pair, const char *format, ...)
{
	va_list arguments;
	if (pair->why)
		return;
	va_start(arguments, format);
	if (vasprintf(&pair->why, format, arguments) < 0)
		pair->why = strdup("refused"); /* out of memory: the next allocation ends the analysis */
	va_end(arguments);
}

char *md_analysis_copy_text(const char *text, bool *failed)
{
	char *copy = text ? strdup(text) : NULL;
	if (text && !copy)
		*failed = true;
	return copy;
}

/* A newer caller may pass a longer struct; its unknown tail must be zero. */
static enum md_status take_options(const struct md_analyze_options *options, struct md_analyze_options *out,
				   struct md_error *err)
{
	*out = (struct md_analyze_options){.size = sizeof(*out)};
	if (!options)
		return MD_OK;
	if (options->size < offsetof(struct md_analyze_options, pass_done))
		return md_error_set(err, MD_ERR_INVALID, "analysis options: size %zu is too small", options->size);
	for (size_t i = sizeof(*out); i < options->size; i++) {
		if (((const unsigned char *)options)[i])
			return md_error_set(err, MD_ERR_INVALID, "analysis options: byte %zu is not known here", i);
	}
	memcpy(out, options, options->size < sizeof(*out) ? options->size : sizeof(*out));
	if (out->no_images && out->store_file_images)
		return md_error_set(err, MD_ERR_INVALID,
				    "analysis options: no images and stored images exclude each other");
	return MD_OK;
}

static void finish(struct md_analysis *analysis)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		free(analysis->pairs[i].why);
		free(analysis->pairs[i].findings.items);
		free(analysis->pairs[i].noises.items);
		free(analysis->pairs[i].doubts.items);
		free(analysis->pairs[i].outputs);
		free(analysis->pairs[i].parts);
	}
	for (uint32_t i = 0; i < analysis->held_count; i++) {
		free(analysis->held[i].data);
		free(analysis->held[i].findings.items);
	}
	for (uint32_t i = 0; analysis->param_kinds && i < analysis->traces[0]->kernel_count; i++)
		free(analysis->param_kinds[i]);
	for (uint32_t i = 0; analysis->broken && i < analysis->views[0].alloc_count; i++)
		free(analysis->broken[i]);
	free(analysis->param_kinds);
	for (uint32_t i = 0; i < analysis->variable_count; i++)
		free(analysis->variables[i].replayed);
	free(analysis->variables);
	free(analysis->variable_of);
	free(analysis->pairs);
	free(analysis->held);
	free(analysis->handings);
	free(analysis->constants);
	free(analysis->broken);
	free(analysis->group);
	free(analysis->partner);
	free(analysis->partner_back);
	free(analysis->binding_match);
	free(analysis->before);
	free(analysis->within);
	free(analysis->kernel_identity[0]);
	free(analysis->kernel_identity[1]);
	free(analysis->alloc_slot);
	free(analysis->alloc_shift);
	free(analysis->binding_slot);
	free(analysis->kernel_slot);
	md_map_finish(&analysis->deltas);
	md_view_finish(&analysis->views[0]);
	md_view_finish(&analysis->views[1]);
}

enum md_status md_analyze(const struct md_trace *first, const struct md_trace *second,
			  const struct md_analyze_options *options, struct md_artifact *out, struct md_error *err)
{
	struct md_artifact artifact = {0};
	struct md_analysis analysis = {.traces = {first, second}, .captures = second ? 2 : 1, .out = &artifact};
	enum md_status status = take_options(options, &analysis.options, err);
	md_map_init(&analysis.deltas);
	for (size_t i = 0; status == MD_OK && i < sizeof(passes) / sizeof(passes[0]); i++) {
		uint64_t start = md_clock_ns();
		status = passes[i].run(&analysis, err);
		if (analysis.options.pass_done)
			analysis.options.pass_done(analysis.options.user, passes[i].name, md_clock_ns() - start);
	}
	if (status == MD_OK)
		md_info("%u graphs, %u refused; %llu pointers whose allocation did not move, %llu constants look like "
			"addresses",
			artifact.graph_count, artifact.refusal_count, (unsigned long long)analysis.fixed_words,
			(unsigned long long)analysis.lookalike_words);
	finish(&analysis);
	if (status != MD_OK)
		md_artifact_finish(&artifact);
	else
		*out = artifact;
	return status;
}
