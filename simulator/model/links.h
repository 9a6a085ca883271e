/* SPDX-License-Identifier: Apache-2.0 */
/* Copies as flows over links that share their speed in equal parts (max-min fair). */
#ifndef MD_SIMULATOR_MODEL_LINKS_H
#define MD_SIMULATOR_MODEL_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_SIM_NO_LINK UINT32_MAX

struct md_sim_link {
	double speed;   /* bytes a ns; 0: without bound */
	uint32_t flows; /* that use it now */
	/* while shares are computed */
	double left;
	uint32_t open;
};

struct md_sim_flow {
	uint32_t links[2]; /* its path, MD_SIM_NO_LINK: none */
	double bytes;      /* left at `since` */
	double speed;      /* bytes a ns, from `since` on; 0: without bound */
	uint64_t since, end;
	uint64_t order; /* of starting: breaks ties */
	uint32_t user;  /* the caller's number */
	bool open;
};

struct md_sim_links {
	struct md_sim_link *links;
	uint32_t link_count;
	struct md_sim_flow *flows; /* no order */
	size_t count, capacity;
	uint64_t orders;
};

/* Speeds are bytes a second; 0: without bound. False: out of memory. */
bool md_sim_links_add(struct md_sim_links *links, double bytes_per_s, uint32_t *link);
/* A flow over one or two links (MD_SIM_NO_LINK: the other is none). False: out of memory. */
bool md_sim_links_start(struct md_sim_links *links, uint64_t now, double bytes, uint32_t first, uint32_t second,
			uint32_t user);
/* The flow that ends first, by then by its start; false if there is none. */
bool md_sim_links_next(const struct md_sim_links *links, uint64_t *at, uint32_t *user);
/* Ends a flow, done or not. Nothing if there is none of that number. */
void md_sim_links_stop(struct md_sim_links *links, uint64_t now, uint32_t user);
void md_sim_links_finish(struct md_sim_links *links);

#endif
