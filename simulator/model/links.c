/* SPDX-License-Identifier: Apache-2.0 */
/* Flows over shared links: whenever one starts or ends, all get new max-min fair shares of their paths. */
#include "simulator/model/links.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"

#define NEVER UINT64_MAX

bool md_sim_links_add(struct md_sim_links *links, double bytes_per_s, uint32_t *link)
{
	if (!MD_ARRAY_EXTEND(links->links, links->link_count))
		return false;
	*link = links->link_count++;
	links->links[*link] = (struct md_sim_link){.speed = bytes_per_s / 1e9};
	return true;
}

void md_sim_links_finish(struct md_sim_links *links)
{
	free(links->links);
	free(links->flows);
	*links = (struct md_sim_links){0};
}

static struct md_sim_link *link_of(const struct md_sim_links *links, const struct md_sim_flow *flow, int which)
{
	return flow->links[which] == MD_SIM_NO_LINK ? NULL : &links->links[flow->links[which]];
}

static double share_of(const struct md_sim_link *link)
{
	return link && link->speed > 0 ? link->left / link->open : INFINITY;
}

/* The least share that any link on an open flow's path gives; it determines that flow's speed. */
static double tightest(const struct md_sim_links *links)
{
	double least = INFINITY;
	for (size_t i = 0; i < links->count; i++) {
		const struct md_sim_flow *flow = &links->flows[i];
		if (!flow->open)
			continue;
		least = fmin(least, fmin(share_of(link_of(links, flow, 0)), share_of(link_of(links, flow, 1))));
	}
	return least;
}

static void settle(struct md_sim_flow *flow, uint64_t now)
{
	if (flow->since == now)
		return;
	flow->bytes -= flow->speed * (double)(now - flow->since);
	if (flow->bytes < 0)
		flow->bytes = 0;
	flow->since = now;
}

/* A flow whose speed does not change keeps its end time: computing it anew would only add rounding errors. */
static void set_speed(struct md_sim_flow *flow, uint64_t now, double speed)
{
	if (speed == flow->speed && flow->end != NEVER)
		return;
	settle(flow, now);
	flow->speed = speed;
	flow->end = isinf(speed) ? now : now + (uint64_t)llround(flow->bytes / speed);
	if (isinf(speed))
		flow->bytes = 0;
}

static void fix(struct md_sim_links *links, struct md_sim_flow *flow, uint64_t now, double speed)
{
	flow->open = false;
	for (int which = 0; which < 2; which++) {
		struct md_sim_link *link = link_of(links, flow, which);
		if (!link)
			continue;
		link->open--;
		link->left -= isinf(speed) ? 0 : speed;
	}
	set_speed(flow, now, speed);
}

static void open_all(struct md_sim_links *links)
{
	for (size_t i = 0; i < links->count; i++) {
		links->flows[i].open = true;
		for (int which = 0; which < 2; which++) {
			struct md_sim_link *link = link_of(links, &links->flows[i], which);
			if (link) {
				link->left = link->speed;
				link->open = link->flows;
			}
		}
	}
}

/* Progressive filling: flows over the link with the least share get that share, then those of the next link. */
static void share(struct md_sim_links *links, uint64_t now)
{
	size_t open = links->count;
	open_all(links);
	while (open) {
		double least = tightest(links);
		size_t before = open;
		for (size_t i = 0; i < links->count; i++) {
			struct md_sim_flow *flow = &links->flows[i];
			if (!flow->open)
				continue;
			double own = fmin(share_of(link_of(links, flow, 0)), share_of(link_of(links, flow, 1)));
			/* subtracting shares from a link leaves rounding errors */
			if (own <= least * (1 + 1e-12)) {
				fix(links, flow, now, own);
				open--;
			}
		}
		if (open == before)
			break;
	}
}

bool md_sim_links_start(struct md_sim_links *links, uint64_t now, double bytes, uint32_t first, uint32_t second,
			uint32_t user)
{
	if (!MD_ARRAY_GROW(links->flows, links->count, links->capacity))
		return false;
	struct md_sim_flow *flow = &links->flows[links->count++];
	*flow = (struct md_sim_flow){.links = {first, second},
				     .bytes = bytes,
				     .since = now,
				     .end = NEVER,
				     .order = links->orders++,
				     .user = user};
	for (int which = 0; which < 2; which++)
		if (link_of(links, flow, which))
			link_of(links, flow, which)->flows++;
	share(links, now);
	return true;
}

bool md_sim_links_next(const struct md_sim_links *links, uint64_t *at, uint32_t *user)
{
	const struct md_sim_flow *next = NULL;
	for (size_t i = 0; i < links->count; i++) {
		const struct md_sim_flow *flow = &links->flows[i];
		if (!next || flow->end < next->end || (flow->end == next->end && flow->order < next->order))
			next = flow;
	}
	if (!next)
		return false;
	*at = next->end;
	*user = next->user;
	return true;
}

void md_sim_links_stop(struct md_sim_links *links, uint64_t now, uint32_t user)
{
	for (size_t i = 0; i < links->count; i++) {
		struct md_sim_flow *flow = &links->flows[i];
		if (flow->user != user)
			continue;
		for (int which = 0; which < 2; which++)
			if (link_of(links, flow, which))
				link_of(links, flow, which)->flows--;
		*flow = links->flows[--links->count];
		share(links, now);
		return;
	}
}
