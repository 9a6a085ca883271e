/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a graph was compared on inputs that differ from the first
 * ones: with inputs that are all zero nearly every graph is right.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/environment.h"
#include "base/setting.h"
#include "driver/maker.h"
#include "restore/restore.h"
#include "restore/verify/handed_copies.h"
#include "restore/verify/inputs.h"
#include "restore/verify/live_graphs.h"

#define HOST_MOST (16u << 20) /* bytes of a buffer that are looked at where the device cannot do it */

static bool is_given(const struct md_bound *bound, enum md_bind_role role)
{
	return bound->role == (uint32_t)role && bound->size;
}

/* Memory that the graph uses and that is bound in this role. */
static size_t list_ranges(const struct md_restore *r, const struct md_restore_graph *graph, enum md_bind_role role,
			  bool on_device, struct md_hash_range *ranges) MD_REQUIRES(md_restore_lock)
{
	size_t count = 0;
	for (uint32_t i = 0; i < graph->binding_count; i++) {
		uint32_t index = r->binding_of[graph->bindings[i]];
		if (index == MD_NONE || md_maker_is_name(r->bound[index].name) || !is_given(&r->bound[index], role))
			continue;
		uint64_t size = r->bound[index].size;
		if (!on_device && size > HOST_MOST)
			size = HOST_MOST;
		ranges[count++] = (struct md_hash_range){.address = r->bound[index].address, .size = size};
	}
	return count;
}

/* The graph's inputs. For an engine that binds inputs as state: everything that graphs may write. */
static size_t choose_ranges(struct md_restore *r, const struct md_restore_graph *graph, bool on_device,
			    struct md_hash_range *ranges)
{
	pthread_mutex_lock(&md_restore_lock);
	size_t count = list_ranges(r, graph, MD_BIND_INPUT, on_device, ranges);
	if (!count)
		count = list_ranges(r, graph, MD_BIND_STATE, on_device, ranges);
	pthread_mutex_unlock(&md_restore_lock);
	return count;
}

/* Memory that other graphs hand to this graph is an input, too. */
static size_t add_handed(const struct md_verify_handed *handed, bool on_device, struct md_hash_range *ranges)
{
	size_t count = 0;
	for (uint32_t i = 0; i < handed->count; i++) {
		uint64_t size = handed->parts[i].stored->size;
		if (!handed->parts[i].stored->reads)
			continue;
		size = !on_device && size > HOST_MOST ? HOST_MOST : size;
		ranges[count++] = (struct md_hash_range){.address = handed->parts[i].live, .size = size};
	}
	return count;
}

enum md_status md_verify_inputs_read(struct md_restore *r, const struct md_restore_graph *graph,
				     const struct md_verify_handed *handed, const struct md_device_hasher *hasher,
				     struct md_verify_inputs *out, struct md_error *err)
{
	const bool on_device = hasher->function != NULL;
	MD_AUTO_FREE struct md_hash_range *ranges =
	    calloc(graph->binding_count + handed->count + (size_t)1, sizeof(*ranges));
	size_t failed, count;
	if (!ranges)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u inputs", graph->binding_count);
	count = add_handed(handed, on_device, ranges);
	count += choose_ranges(r, graph, on_device, ranges + count);
	MD_FORWARD(md_device_hash(hasher, r->stream, ranges, count, &failed, err));
	*out = (struct md_verify_inputs){.known = true, .none = !count};
	for (size_t i = 0; i < count; i++) {
		const uint64_t both[2] = {out->sum, md_hash_checksum(&ranges[i].hash, sizeof(ranges[i].hash))};
		out->sum = md_hash_checksum(both, sizeof(both));
	}
	return MD_OK;
}

void md_verify_inputs_note(struct md_live_graph *live, const struct md_verify_inputs *now)
{
	if (!now->known)
		return;
	live->varied |= now->none || (live->inputs.known && live->inputs.sum != now->sum);
	if (!live->inputs.known)
		live->inputs = *now;
}

bool md_verify_unvaried_accepted(void)
{
	return md_setting_is_on("MEDUSA_ACCEPT_UNVARIED", false, false, "inputs that never varied are not accepted");
}
