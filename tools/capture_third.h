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
 * Analyzes the third capture with each of the others (with the first alone, if the second and the third are of an
 * engine with other weights), and takes whichever artifact holds most graphs, that of the first two if it does as well.
 * *artifact is that one when called; it is replaced, or left as it is. what says the same of it.
 */
enum md_status md_third_choose(const struct md_trace runs[MD_CAPTURES_MOST], const struct md_analyze_options *options,
			       bool other_weights, struct md_artifact *artifact, struct md_third *what,
			       struct md_error *err);

#endif
