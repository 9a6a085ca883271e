/* SPDX-License-Identifier: Apache-2.0 */
/* A third capture, for engines that choose kernels anew at each start, so that two captures disagree about kernels. */
#ifndef MD_TOOLS_CAPTURE_THIRD_H
#define MD_TOOLS_CAPTURE_THIRD_H

#include "analyze/analyze.h"

#define MD_CAPTURES_MOST 3

struct md_third {
	unsigned first, second; /* which captures the artifact is of, from 0 */
	uint32_t disagreed;     /* graphs about which these two disagree */
};

/*
 * Analyzes the third capture with each of the others (only with the first, if the second and the third are of an engine
 * with other weights), and takes the artifact that holds most graphs, or that of the first two if none holds more.
 * *artifact is that of the first two when called, and is replaced or left as it is. what: the captures that it is of.
 */
enum md_status md_third_choose(const struct md_trace runs[MD_CAPTURES_MOST], const struct md_analyze_options *options,
			       bool other_weights, struct md_artifact *artifact, struct md_third *what,
			       struct md_error *err);

#endif
