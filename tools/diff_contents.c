/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between the refusals of two artifacts, and between the contents of their private memory. */
#include <inttypes.h>
#include <string.h>

#include "tools/diff.h"

static char *name_refusal(const void *owner, uint32_t index)
{
	const struct md_artifact_refusal *refusal = &((const struct md_artifact *)owner)->refusals[index];
	return md_diff_name("left out %s/%" PRIu32, refusal->label ? refusal->label : "(no label)", refusal->batch);
}

static void compare_refusal(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	md_diff_text(diff, "graphs", name, a == MD_NONE || b == MD_NONE ? NULL : "why",
		     a == MD_NONE ? NULL : diff->a->refusals[a].why, b == MD_NONE ? NULL : diff->b->refusals[b].why);
}

static bool same_content(struct md_diff *diff, const struct md_artifact_content *x, const struct md_artifact_content *y)
{
	bool same = md_diff_same_alloc(diff, x->alloc, y->alloc) && x->offset == y->offset && x->size == y->size &&
		    x->pointer_count == y->pointer_count && (!x->size || !memcmp(x->data, y->data, x->size));
	for (uint32_t i = 0; same && i < x->pointer_count; i++) {
		const struct md_pointer *p = &x->pointers[i], *q = &y->pointers[i];
		same = p->at == q->at && p->kind == q->kind && p->offset == q->offset &&
		       md_diff_same_alloc(diff, p->alloc, q->alloc);
	}
	return same;
}

static void content_text(const struct md_artifact *artifact, const struct md_artifact_content *content, char *out,
			 size_t room)
{
	char place[80];
	md_diff_place_text(artifact, content->alloc, (int64_t)content->offset, place, sizeof(place));
	snprintf(out, room, "%" PRIu64 " bytes at %s", content->size, place);
}

static uint64_t content_bytes(const struct md_artifact *artifact)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < artifact->content_count; i++)
		bytes += artifact->contents[i].size;
	return bytes;
}

/* Both lists are in the order of the arena. */
static void compare_contents(struct md_diff *diff)
{
	const struct md_artifact *a = diff->a, *b = diff->b;
	struct md_diff_tally changed = {0};
	md_diff_number(diff, "contents", "", "places", a->content_count, b->content_count);
	md_diff_number(diff, "contents", "", "bytes", (int64_t)content_bytes(a), (int64_t)content_bytes(b));
	for (uint32_t i = 0; i < a->content_count && i < b->content_count; i++) {
		if (same_content(diff, &a->contents[i], &b->contents[i]) || changed.count++)
			continue;
		snprintf(changed.first, sizeof(changed.first), "content %" PRIu32, i);
		content_text(a, &a->contents[i], changed.a, sizeof(changed.a));
		content_text(b, &b->contents[i], changed.b, sizeof(changed.b));
	}
	md_diff_tally(diff, "contents", "", "places differ", &changed);
}

void md_diff_contents(struct md_diff *diff)
{
	md_diff_tables(diff, &(struct md_diff_table){diff->a->refusal_count, diff->a, name_refusal},
		       &(struct md_diff_table){diff->b->refusal_count, diff->b, name_refusal}, compare_refusal);
	compare_contents(diff);
}
