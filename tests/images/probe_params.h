/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the kernels that compare, search, copy and fill memory, as driver/device_*.c launch them. */
#ifndef TESTS_IMAGES_PROBE_PARAMS_H
#define TESTS_IMAGES_PROBE_PARAMS_H

#include "hostcuda/kernel.h"

struct md_probe_differ_params {
	const uint64_t *one, *two;
	uint64_t words; /* of 16 bytes */
	uint8_t *flags;
};

struct md_probe_search_params {
	const uint64_t *data;
	uint64_t words; /* of 8 bytes */
	uint64_t lowest, span;
	uint8_t *flags;
};

struct md_probe_part {
	uint8_t *to;
	const uint8_t *from;
	uint64_t bytes, what;
};

struct md_probe_pieces_params {
	const struct md_probe_part *pieces;
	uint64_t count;
};

#define PROBE_DIFFER_KERNEL                                                                                            \
	HOSTCUDA_KERNEL(                                                                                               \
	    md_probe_differ, struct md_probe_differ_params, HOSTCUDA_PARAM(struct md_probe_differ_params, one),        \
	    HOSTCUDA_PARAM(struct md_probe_differ_params, two), HOSTCUDA_PARAM(struct md_probe_differ_params, words),  \
	    HOSTCUDA_PARAM(struct md_probe_differ_params, flags))

#define PROBE_SEARCH_KERNEL                                                                                            \
	HOSTCUDA_KERNEL(                                                                                               \
	    md_probe_search, struct md_probe_search_params, HOSTCUDA_PARAM(struct md_probe_search_params, data),       \
	    HOSTCUDA_PARAM(struct md_probe_search_params, words),                                                      \
	    HOSTCUDA_PARAM(struct md_probe_search_params, lowest),                                                     \
	    HOSTCUDA_PARAM(struct md_probe_search_params, span), HOSTCUDA_PARAM(struct md_probe_search_params, flags))

#define PROBE_PIECES_KERNEL                                                                                            \
	HOSTCUDA_KERNEL(md_probe_pieces, struct md_probe_pieces_params,                                                \
			HOSTCUDA_PARAM(struct md_probe_pieces_params, pieces),                                         \
			HOSTCUDA_PARAM(struct md_probe_pieces_params, count))

#endif
