/* SPDX-License-Identifier: Apache-2.0 */
/* Laws of arrivals: what a law is, and the state while one draws. */
#ifndef MD_SIMULATOR_WORKLOAD_LAWS_H
#define MD_SIMULATOR_WORKLOAD_LAWS_H

#include "simulator/workload/builder.h"

#define MD_SIM_LAW_VALUES 4

enum md_sim_law_unit { MD_SIM_LAW_NUMBER, MD_SIM_LAW_COUNT, MD_SIM_LAW_TIME }; /* times are in seconds */

/* A value that may follow the name of a law: "bursty:cov=4,zipf=1". */
struct md_sim_law_value {
	const char *name;
	enum md_sim_law_unit unit;
	double usual, low, high;
};

struct md_sim_drawing {
	struct md_sim_builder *builder;
	double values[MD_SIM_LAW_VALUES];
	double *rates; /* requests a second, by function */
	double total;  /* sum of the rates */
	double end;    /* s */
};

struct md_sim_law {
	const char *name;
	struct md_sim_law_value values[MD_SIM_LAW_VALUES];
	/* Changes relative rates before they are scaled to the wanted load; NULL: they stay as the functions have them. */
	enum md_status (*shape)(struct md_sim_drawing *drawing);
	enum md_status (*draw)(struct md_sim_drawing *drawing);
};

/* The law that spec begins with; NULL: spec is not a law. */
const struct md_sim_law *md_sim_law_find(const char *spec);
/* spec: the law's name and values. */
enum md_status md_sim_law_draw(struct md_sim_builder *builder, const struct md_sim_law *law, const char *spec);
enum md_status md_sim_law_add(struct md_sim_drawing *drawing, uint32_t function, double seconds);
/*
 * Adds a Poisson process of a rate per second, from `from` to `to`. The process has no memory, so each stretch begins
 * anew.
 */
enum md_status md_sim_law_stretch(struct md_sim_drawing *drawing, uint32_t function, struct md_sim_random *random,
				  double per_s, double from, double to);

/* ---- synthetic.c ---- */
enum md_status md_sim_bursty_shape(struct md_sim_drawing *drawing);
enum md_status md_sim_bursty_draw(struct md_sim_drawing *drawing);
enum md_status md_sim_diurnal_draw(struct md_sim_drawing *drawing);
enum md_status md_sim_burst_draw(struct md_sim_drawing *drawing);
enum md_status md_sim_cyclic_shape(struct md_sim_drawing *drawing);
enum md_status md_sim_cyclic_draw(struct md_sim_drawing *drawing);

#endif
