/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of each kernel parameter: a number, an address, or a struct, which may have bytes that nobody sets. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/mangled.h"
#include "format/artifact/artifact.h"

/* A name is not relied on if its types have other sizes than the driver reports. */
static bool agrees(const struct md_mangled_param *said, const struct md_param *param)
{
	return said->kind == MD_MANGLED_OBJECT || said->size == param->size;
}

static bool go_by_name(const struct md_kernel *kernel, uint8_t *kinds)
{
	MD_AUTO_FREE struct md_mangled_param *said = calloc(kernel->param_count + (size_t)1, sizeof(*said));
	if (!said || !md_mangled_params(kernel->name, said, kernel->param_count))
		return false;
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		if (!agrees(&said[i], &kernel->params[i]))
			return false;
		kinds[i] = said[i].kind == MD_MANGLED_NUMBER    ? MD_PARAM_SCALAR
			   : said[i].kind == MD_MANGLED_ADDRESS ? MD_PARAM_ADDRESS
								: MD_PARAM_STRUCT;
	}
	return true;
}

void md_kernel_param_kinds(const struct md_kernel *kernel, uint8_t *kinds)
{
	bool mangled = !strncmp(kernel->name, "_Z", 2);
	if (mangled && go_by_name(kernel, kinds))
		return;
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		uint32_t size = kernel->params[i].size;
		kinds[i] = mangled                               ? MD_PARAM_STRUCT
			   : size == 8                           ? MD_PARAM_WORD
			   : size == 1 || size == 2 || size == 4 ? MD_PARAM_SCALAR
								 : MD_PARAM_STRUCT;
	}
}

/* ---- what counts as unset ---- */

static uint64_t shared_bytes(const struct md_noise *noise, const struct md_param *param)
{
	uint64_t from = noise->at > param->offset ? noise->at : param->offset;
	uint64_t end = (uint64_t)noise->at + noise->size, last = (uint64_t)param->offset + param->size;
	last = last < end ? last : end;
	return from < last ? last - from : 0;
}

static void count_span(const struct md_noise *noise, const struct md_kernel *kernel, const uint8_t *kinds,
		       uint8_t *seen, struct md_unset *out)
{
	uint64_t other = kernel->param_count ? noise->size : 0;
	if (!kernel->param_count) /* the layout of the block is not known */
		out->struct_bytes += noise->size;
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		uint64_t shared = shared_bytes(noise, &kernel->params[i]);
		if (!shared || kinds[i] == MD_PARAM_ADDRESS || kinds[i] == MD_PARAM_WORD)
			continue;
		other -= shared;
		if (kinds[i] == MD_PARAM_STRUCT)
			out->struct_bytes += shared;
		else if (!seen[i])
			out->scalars += seen[i] = 1;
	}
	out->other_bytes += other;
}

enum md_status md_artifact_unset(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
				 struct md_unset *out, struct md_error *err)
{
	uint32_t most = 0, node = MD_NONE;
	*out = (struct md_unset){0};
	for (uint32_t i = 0; i < artifact->kernel_count; i++)
		most = artifact->kernels[i].param_count > most ? artifact->kernels[i].param_count : most;
	MD_AUTO_FREE uint8_t *kinds = calloc(most + (size_t)1, 1), *seen = calloc(most + (size_t)1, 1);
	if (!kinds || !seen)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %" PRIu32 " parameters", most);
	for (uint32_t i = 0; i < graph->noise_count; i++) {
		const struct md_noise *noise = &graph->noise[i];
		const struct md_kernel *kernel = &artifact->kernels[graph->nodes[noise->node].kernel];
		if (noise->node != node) {
			md_kernel_param_kinds(kernel, kinds);
			memset(seen, 0, most);
		}
		node = noise->node;
		count_span(noise, kernel, kinds, seen, out);
	}
	return MD_OK;
}
