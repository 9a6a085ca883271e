/* SPDX-License-Identifier: Apache-2.0 */
/* What other launches of a kernel show about a parameter that may be an end or a beginning. */
#ifndef MD_ANALYZE_BORDER_EVIDENCE_H
#define MD_ANALYZE_BORDER_EVIDENCE_H

#include "analyze/analysis.h"

enum md_border_meaning { MD_BORDER_IS_BEGIN = 1, MD_BORDER_IS_END = 2 };

/* The kernel and the byte of its parameters. The word is one of a kernel node. */
uint64_t md_border_key(const struct md_analysis *analysis, const struct md_pair *pair,
		       const struct md_finding *finding);

/*
 * What the word at `index` shows about its parameter; 0: nothing. items: the findings of one kernel node. The views are
 * at its launch.
 */
unsigned md_border_evidence(const struct md_analysis *analysis, const struct md_pair *pair,
			    const struct md_finding *items, uint32_t count, uint32_t index);

#endif
