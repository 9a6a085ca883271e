/* SPDX-License-Identifier: Apache-2.0 */
/* Of three captures of one engine, finds the two that agree about most graphs. */
#include "tools/capture_third.h"

static enum md_status try_pair(const struct md_trace runs[MD_CAPTURES_MOST], unsigned with,
			       const struct md_analyze_options *options, struct md_artifact *artifact,
			       struct md_third *what, struct md_error *err)
{
	struct md_third now = {with, 2, 0};
	struct md_analyze_options wanted = *options;
	struct md_artifact other;
	wanted.disagreed = &now.disagreed;
	MD_FORWARD(md_analyze(&runs[with], &runs[2], &wanted, &other, err));
	if (other.graph_count <= artifact->graph_count) {
		md_artifact_finish(&other);
		return MD_OK;
	}
	md_artifact_finish(artifact);
	*artifact = other;
	*what = now;
	return MD_OK;
}

enum md_status md_third_choose(const struct md_trace runs[MD_CAPTURES_MOST], const struct md_analyze_options *options,
			       bool other_weights, struct md_artifact *artifact, struct md_third *what,
			       struct md_error *err)
{
	MD_FORWARD(try_pair(runs, 0, options, artifact, what, err));
	return other_weights ? MD_OK : try_pair(runs, 1, options, artifact, what, err);
}
