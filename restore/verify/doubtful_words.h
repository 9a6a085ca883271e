/* SPDX-License-Identifier: Apache-2.0 */
/* Words that only replay can tell to be noise. */
#ifndef MD_RESTORE_VERIFY_DOUBTFUL_WORDS_H
#define MD_RESTORE_VERIFY_DOUBTFUL_WORDS_H

#include "driver/device_session.h"
#include "restore/restore.h"

struct md_verify_replays {
	struct md_device_session *device;
	/*
	 * Builds and replays a restored graph with its trial;
	 * MD_ERR_MISMATCH when it leaves other bytes than the live graph.
	 */
	enum md_status (*compare)(void *user, struct md_restore_graph *graph, bool other_noise, struct md_error *err);
	void *user;
};

/*
 * Called after the graph was found equal with the first capture's values in its doubtful words. MD_ERR_UNPROVABLE names
 * the first word that matters. Work is held, and a note is begun.
 */
enum md_status md_verify_words_prove(struct md_restore *r, struct md_restore_graph *graph,
				     const struct md_verify_replays *replays, struct md_error *err);

#endif
