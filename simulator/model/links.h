/* SPDX-License-Identifier: Apache-2.0 */
/* Copies as flows over links that share their speed in equal parts (max-min fair). */
#ifndef MD_SIMULATOR_MODEL_LINKS_H
#define MD_SIMULATOR_MODEL_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_SIM_NO_LINK UINT32_MAX

struct md_sim_link {
	double speed;   /* bytes per ns; 0: unlimited */
	uint32_t flows; /* that use the link now */
	/* while shares are computed */
	double left;
	uint32_t open;
};

struct md_sim_flow {
	uint32_t links[2]; /* its path, MD_SIM_NO_LINK: none */
	double bytes;      /* bytes that were left at time `since` */
	double speed;      /* bytes per ns, from time `since` on; 0: unlimited */
	uint64_t since, end;
	uint64_t order; /* order of starting, to break ties */
	uint32_t user;  /* the caller's number */
	bool open;
};

struct md_sim_links {
	struct md_sim_link *links;
	uint32_t link_count;
	struct md_sim_flow *flows; /* in no particular order */
	size_t count, capacity;
	uint64_t orders;
};

/* Speeds are in bytes per second; 0: unlimited. False: out of memory. */
bool md_sim_links_add(struct md_sim_links *links, double bytes_per_s, uint32_t *link);
/* Starts a flow over one or two links (MD_SIM_NO_LINK for the second: one). False: out of memory. */
bool md_sim_links_start(struct md_sim_links *links, uint64_t now, double bytes, uint32_t first, uint32_t second,
			uint32_t user);
/* The flow that ends first; of several, the one that started first. False if there is none. */
bool md_sim_links_next(const struct md_sim_links *links, uint64_t *at, uint32_t *user);
/* Ends a flow, complete or not. Does nothing if there is no flow of that number. */
void md_sim_links_stop(struct md_sim_links *links, uint64_t now, uint32_t user);
void md_sim_links_finish(struct md_sim_links *links);

#endif
