/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of the report of a verify run: the result of one comparison,
 * which the restore library writes and the commands read.
 */
#ifndef MD_FORMAT_VERIFY_LINE_H
#define MD_FORMAT_VERIFY_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum md_verdict {
	MD_VERDICT_SKIPPED = 0, /* the comparison did not take place */
	MD_VERDICT_PASS = 1,
	MD_VERDICT_FAIL = 2,
	MD_VERDICT_NONDETERMINISTIC = 3,
	MD_VERDICT_BEGUN = 4, /* a comparison begins: one of the others follows, unless the engine ends in it */
	MD_VERDICT_NOISE =
	    /* no comparison: the doubtful word of index `bytes` is proven to be noise by the comparison that goes on */
	6,
	MD_VERDICT_END = 5, /* no comparison: the report of this process is complete */
	/*
	 * No comparison: each address of the graph that is the end of another binding and the beginning of the one of
	 * index `bytes` was shown to be the beginning.
	 */
	MD_VERDICT_BEGINS = 7,
	/*
	 * The comparison counts as nothing: it took place at the launch of another graph, and the graph's live replays
	 * differ among themselves. Its inputs may not be valid for it then, such as rows of a larger batch.
	 */
	MD_VERDICT_DROPPED = 8,
	/* No comparison: what MEDUSA_UNTIL names has happened, and all that was due then is compared. */
	MD_VERDICT_UNTIL = 9,
	/* No comparison: the graph's comparisons do not count while what `reason` says is so. */
	MD_VERDICT_OWED = 10,
	MD_VERDICT_SETTLED = 11, /* no comparison: what was owed is there */
};

struct md_verify_line {
	enum md_verdict verdict;
	const char *label; /* any bytes but NUL */
	uint32_t batch;
	uint64_t bytes; /* compared */
	const char *reason;
};

/* "pass" ... */
const char *md_verdict_name(enum md_verdict verdict);

/* Makes one line, with its line end; the caller frees it. */
enum md_status md_verify_line_write(const struct md_verify_line *line, char **text, size_t *size, struct md_error *err);

/*
 * text: a line without its end, followed by NUL. It is changed,
 * and the strings of the line point into it. MD_ERR_CORRUPT.
 */
enum md_status md_verify_line_read(char *text, size_t size, struct md_verify_line *line, struct md_error *err);

#endif
