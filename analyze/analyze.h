/* SPDX-License-Identifier: Apache-2.0 */
/* Analysis: one or two traces of the same warm start become an artifact, with every pointer proven or its graph
 * refused. */
#ifndef MD_ANALYZE_ANALYZE_H
#define MD_ANALYZE_ANALYZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/artifact/artifact.h"
#include "format/trace/trace.h"

/* Private memory at addresses that graphs have, which no replay read or wrote and which is not stored. */
struct md_untouched {
	uint64_t bytes;
	uint32_t places;
};

struct md_analyze_options {
	size_t size;            /* sizeof(struct md_analyze_options) */
	bool no_images;         /* store and reference none: kernels come from triggering kernels alone */
	bool store_file_images; /* store images that lie in a file too, so that the file may be missing at restore */
	/* Called after each pass with the time it took; may be NULL. */
	void (*pass_done)(void *user, const char *pass, uint64_t ns);
	void *user;
	/* Words that only replay can tell to be noise are kept for it (struct md_doubtful); else their graph is
	 * refused. */
	bool keep_doubtful;
	/* Patterns of arguments that may be others at a cold start; see md_arguments_compare. May be NULL. */
	const struct md_argument_list *vary;
	/* Set to the number of graphs that the captures disagree about: other kernels, nodes, edges. May be NULL. */
	uint32_t *disagreed;
	/* Scalar parameters that differ between the captures and are no address count as unset; else their graph is
	 * refused. */
	bool accept_process_values;
	struct md_untouched *untouched; /* set; may be NULL */
	bool refuse_unset;              /* a graph is refused if bytes of its struct parameters differ */
	/*
	 * A graph is kept that reads unbound memory which kernels outside of graphs may write, if that memory never
	 * varied.
	 */
	bool accept_unvaried;
};

/* The text in the artifact's provenance for an analysis that accepted them. */
#define MD_PROCESS_VALUES_ACCEPTED "values of the process were accepted as parameters"

/*
 * Makes the artifact of the graphs in first (MEDUSA, section 4). second is another capture of the same program in
 * another process with other addresses; it settles which words are pointers. second NULL: pointers are guessed from
 * liveness alone, and the artifact says so (MD_PROOF_NONE). options may be NULL.
 *
 * A graph that cannot be proven is no error: it is listed in out->refusals with the reason. Errors: MD_ERR_MISMATCH
 * when the captures come from different devices or drivers, or a file that an image should be stored from has changed;
 * MD_ERR_IO when it cannot be read; MD_ERR_INVALID for options; MD_ERR_NO_MEMORY. out is set on success alone and owns
 * all it holds: md_artifact_finish.
 */
enum md_status md_analyze(const struct md_trace *first, const struct md_trace *second,
			  const struct md_analyze_options *options, struct md_artifact *out, struct md_error *err);

/*
 * The time as in RFC 3339, UTC: SOURCE_DATE_EPOCH if a repeatable build sets it, else now. MD_ERR_INVALID when that
 * variable holds no such time. md_analyze fails with it, too, so a command asks before it does anything else.
 */
#define MD_ANALYZE_TIME_BYTES 32
enum md_status md_analyze_time(char text[MD_ANALYZE_TIME_BYTES], struct md_error *err);

#endif
