/* SPDX-License-Identifier: Apache-2.0 */
/* The column of memset, memcpy, child graph and event nodes: their fields as numbers, written and read side by side. */
#include <string.h>

#include "format/codec/columns.h"

enum { COPY_FIELDS = 17 };

static bool is_event(const struct md_node *node)
{
	return node->type == MD_NODE_EVENT_WAIT || node->type == MD_NODE_EVENT_RECORD;
}

/*
 * Lists the fields of a memset, memcpy, child or event node as numbers, in the order of declaration; returns how many.
 */
static int copy_fields(const struct md_node *node, uint64_t fields[COPY_FIELDS])
{
	if (node->type == MD_NODE_MEMSET) {
		const struct md_memset *set = &node->memset;
		const uint64_t all[] = {set->dst, set->pitch, set->width, set->height, set->value, set->element_size};
		memcpy(fields, all, sizeof(all));
		return sizeof(all) / sizeof(*all);
	}
	if (node->type == MD_NODE_CHILD || is_event(node)) {
		fields[0] = node->type == MD_NODE_CHILD ? node->child_nodes : node->event;
		return 1;
	}
	if (node->type != MD_NODE_MEMCPY)
		return 0;
	const struct md_memcpy *copy = &node->memcpy;
	const uint64_t all[] = {copy->src,    copy->dst,   copy->src_type,  copy->dst_type,   copy->src_x,
				copy->src_y,  copy->src_z, copy->src_pitch, copy->src_height, copy->dst_x,
				copy->dst_y,  copy->dst_z, copy->dst_pitch, copy->dst_height, copy->width,
				copy->height, copy->depth};
	_Static_assert(sizeof(all) == sizeof(uint64_t) * COPY_FIELDS, "every field of a copy is listed");
	memcpy(fields, all, sizeof(all));
	return COPY_FIELDS;
}

static bool copy_from_fields(struct md_node *node, const uint64_t f[COPY_FIELDS])
{
	if (node->type == MD_NODE_MEMSET) {
		node->memset = (struct md_memset){.dst = f[0],
						  .pitch = f[1],
						  .width = f[2],
						  .height = f[3],
						  .value = (uint32_t)f[4],
						  .element_size = (uint32_t)f[5]};
		return f[4] <= UINT32_MAX && f[5] <= UINT32_MAX;
	}
	if (node->type == MD_NODE_CHILD || is_event(node)) {
		*(node->type == MD_NODE_CHILD ? &node->child_nodes : &node->event) = (uint32_t)f[0];
		return f[0] <= UINT32_MAX;
	}
	node->memcpy = (struct md_memcpy){.src = f[0],
					  .dst = f[1],
					  .src_type = (uint32_t)f[2],
					  .dst_type = (uint32_t)f[3],
					  .src_x = f[4],
					  .src_y = f[5],
					  .src_z = f[6],
					  .src_pitch = f[7],
					  .src_height = f[8],
					  .dst_x = f[9],
					  .dst_y = f[10],
					  .dst_z = f[11],
					  .dst_pitch = f[12],
					  .dst_height = f[13],
					  .width = f[14],
					  .height = f[15],
					  .depth = f[16]};
	return f[2] <= UINT32_MAX && f[3] <= UINT32_MAX;
}

bool md_columns_has_copy(const struct md_node *node)
{
	return node->type == MD_NODE_MEMSET || node->type == MD_NODE_MEMCPY || node->type == MD_NODE_CHILD ||
	       is_event(node);
}

void md_columns_put_copy(struct md_buf *out, const struct md_node *node, const struct md_node *predictor)
{
	uint64_t fields[COPY_FIELDS], predicted[COPY_FIELDS] = {0};
	int count = copy_fields(node, fields);
	copy_fields(predictor, predicted);
	for (int i = 0; i < count; i++)
		md_columns_put_difference(out, fields[i], predicted[i]);
}

void md_columns_get_copy(struct md_reader *in, struct md_node *node, const struct md_node *predictor)
{
	uint64_t fields[COPY_FIELDS] = {0}, predicted[COPY_FIELDS] = {0};
	int count = copy_fields(node, fields);
	copy_fields(predictor, predicted);
	for (int i = 0; i < count; i++)
		fields[i] = md_columns_get_sum(in, predicted[i]);
	if (count && !copy_from_fields(node, fields))
		md_unpack_fail(in);
}
