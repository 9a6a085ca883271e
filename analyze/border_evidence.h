/* SPDX-License-Identifier: Apache-2.0 */
/* What other launches of a kernel say of a parameter that may be an end or a beginning. */
#ifndef MD_ANALYZE_BORDER_EVIDENCE_H
#define MD_ANALYZE_BORDER_EVIDENCE_H

#include "analyze/analysis.h"

enum md_border_meaning { MD_BORDER_IS_BEGIN = 1, MD_BORDER_IS_END = 2 };

/* The kernel and the byte of its parameters. The word is one of a kernel node. */
uint64_t md_border_key(const struct md_analysis *analysis, const struct md_pair *pair,
		       const struct md_finding *finding);

/*
 * items: the findings of one kernel node. The views stand at its launch. What the word at `index` shows of its
 * parameter; 0: nothing.
 */
unsigned md_border_evidence(const struct md_analysis *analysis, const struct md_pair *pair,
			    const struct md_finding *items, uint32_t count, uint32_t index);

#endif
