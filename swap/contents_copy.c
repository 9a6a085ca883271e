/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the blocks of the contents over the links, part by part, and waits for all contexts at the end. */
#include "base/clock.h"
#include "swap/contents.h"

static bool is_copied(const struct md_swap_contents *contents, size_t block, enum md_swap_direction direction)
{
	if (md_swap_is_spilled(contents->blocks[block]))
		return false;
	return direction == MD_SWAP_TO_DEVICE ? contents->blocks[block] < MD_SWAP_ZERO : contents->fresh[block];
}

static void lock_pages(const struct md_swap_contents *contents, const struct md_swap_part *part,
		       struct md_swap_links *links, const struct md_swap_link *link, enum md_swap_direction direction)
{
	for (size_t i = part->first; i < part->first + part->count; i++)
		if (is_copied(contents, i, direction))
			md_swap_links_lock(links, link, contents->blocks[i]);
}

static enum md_status copy_blocks(const struct md_swap_contents *contents, const struct md_swap_part *part,
				  struct md_swap_run *run, struct md_swap_report *report, struct md_error *err)
{
	for (size_t i = part->first; i < part->first + part->count; i++) {
		const struct md_hash_range *at = &contents->hashes[i];
		if (is_copied(contents, i, run->direction)) {
			MD_FORWARD(md_swap_run_add(run, at->address, contents->blocks[i], at->size, err));
			report->copied += at->size;
		} else if (contents->blocks[i] == MD_SWAP_ZERO) {
			report->zero += at->size;
			if (run->direction == MD_SWAP_TO_DEVICE)
				MD_FORWARD(md_swap_link_zero(run->links, run->link, at->address, at->size, err));
		} else if (!contents->fresh[i] && run->direction == MD_SWAP_TO_HOST) {
			report->hashed_equal += at->size;
		}
	}
	return md_swap_run_end(run, err);
}

enum md_status md_swap_contents_copy_part(const struct md_swap_contents *contents, const struct md_swap_part *part,
					  struct md_swap_links *links, enum md_swap_direction direction,
					  struct md_swap_report *report, struct md_error *err)
{
	struct md_swap_run run = {.links = links, .direction = direction};
	struct md_swap_link *link;
	uint64_t began = md_clock_ns();
	MD_FORWARD(md_swap_links_get(links, part->range.context, &link, err));
	run.link = link;
	lock_pages(contents, part, links, link, direction);
	report->ns_lock += md_clock_ns() - began;
	return copy_blocks(contents, part, &run, report, err);
}

enum md_status md_swap_contents_lock(const struct md_swap_contents *contents, struct md_swap_links *links,
				     struct md_swap_report *report, struct md_error *err)
{
	uint64_t began = md_clock_ns();
	for (size_t i = 0; i < contents->part_count; i++) {
		struct md_swap_link *link;
		if (!contents->parts[i].count)
			continue;
		MD_FORWARD(md_swap_links_get(links, contents->parts[i].range.context, &link, err));
		lock_pages(contents, &contents->parts[i], links, link, MD_SWAP_TO_DEVICE);
	}
	report->ns_lock += md_clock_ns() - began;
	return MD_OK;
}

/* Called after a failure, too: no copy is under way when this returns. */
enum md_status md_swap_contents_wait(const struct md_swap_contents *contents, struct md_swap_links *links,
				     struct md_error *err)
{
	CUcontext waited_for = NULL;
	enum md_status status = MD_OK;
	struct md_error later = {0};
	for (size_t i = 0; i < contents->part_count; i++) {
		const struct md_swap_part *part = &contents->parts[i];
		struct md_swap_link *link;
		if (!part->count || part->range.context == waited_for)
			continue;
		waited_for = part->range.context;
		enum md_status one = md_swap_links_get(links, waited_for, &link, status == MD_OK ? err : &later);
		if (one == MD_OK)
			one = md_swap_link_wait(links, link, status == MD_OK ? err : &later);
		status = status == MD_OK ? one : status;
	}
	return status;
}

void md_swap_contents_settle(const struct md_swap_contents *contents, struct md_swap_links *links)
{
	CUcontext settled = NULL;
	for (size_t i = 0; i < contents->part_count; i++) {
		CUcontext context = contents->parts[i].range.context;
		if (context == settled)
			continue;
		settled = context;
		if (!links->driver->cuCtxSetCurrent(context))
			links->driver->cuCtxSynchronize();
	}
}

enum md_status md_swap_contents_copy(const struct md_swap_contents *contents, struct md_swap_links *links,
				     enum md_swap_direction direction, struct md_swap_report *report,
				     struct md_error *err)
{
	struct md_error later = {0};
	enum md_status status = MD_OK, waited;
	for (size_t i = 0; i < contents->part_count && status == MD_OK; i++) {
		const struct md_swap_part *part = &contents->parts[i];
		if (part->count && (direction == MD_SWAP_TO_HOST || part->place == MD_SWAP_EMPTY))
			status = md_swap_contents_copy_part(contents, part, links, direction, report, err);
	}
	if (status == MD_OK)
		status = md_swap_contents_copy_spilled(contents, links, direction, report, err);
	waited = md_swap_contents_wait(contents, links, status == MD_OK ? err : &later);
	return status == MD_OK ? waited : status;
}
