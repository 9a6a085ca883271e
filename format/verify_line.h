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
	/* no comparison: the comparison under way proves that the doubtful word with the index `bytes` is noise */
	MD_VERDICT_NOISE = 6,
	MD_VERDICT_END = 5, /* no comparison: the report of this process is complete */
	/*
	 * No comparison: some addresses of the graph are both the end of another binding and the beginning of the
	 * binding with the index `bytes`; each of them was shown to mean the beginning.
	 */
	MD_VERDICT_BEGINS = 7,
	/*
	 * The comparison does not count: it took place at the launch of another graph, and live replays of this graph
	 * differ among themselves. Its inputs may not have been valid for it then, such as idle rows of a larger batch.
	 */
	MD_VERDICT_DROPPED = 8,
	/*
	 * No comparison: what MEDUSA_UNTIL names has happened, and everything that was due by then has been compared.
	 */
	MD_VERDICT_UNTIL = 9,
	/* No comparison: the graph's comparisons do not count while the condition in `reason` holds. */
	MD_VERDICT_OWED = 10,
	MD_VERDICT_SETTLED = 11, /* no comparison: the condition of MD_VERDICT_OWED no longer holds */
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
