/* SPDX-License-Identifier: Apache-2.0 */
/* Each step is said in words: ranks that take different courses say different things, and the user reads which. */
#include "ranks/lockstep.h"

#include <stdio.h>

#include "ranks/meeting.h"

/* After a step that failed nothing more is done together in this test, so that the next one finds all ranks at the same step. */
static enum md_status step(struct md_lockstep *lockstep, const char *text, bool *yes, struct md_error *err)
{
	struct md_error lost = {0};
	bool over;
	if (!lockstep->rank)
		return MD_OK;
	if (lockstep->lost.status)
		return md_error_set(err, lockstep->lost.status, "%s", lockstep->lost.message);
	if (md_ranks_step(lockstep->rank, text, yes, &over, &lost) == MD_OK)
		return MD_OK;
	/* what ranks do not do together shows nothing, whatever kept them from it */
	md_error_set(&lockstep->lost, MD_ERR_UNPROVABLE, "%s", lost.message);
	return md_error_set(err, MD_ERR_UNPROVABLE, "%s", lost.message);
}

static enum md_status say(struct md_lockstep *lockstep, const char *text, struct md_error *err)
{
	bool yes = true;
	return step(lockstep, text, &yes, err);
}

/* The others, which go on, learn why this rank does not. */
static enum md_status say_failed(struct md_lockstep *lockstep, enum md_status status, const struct md_error *err)
{
	struct md_error theirs = {0};
	char text[480];
	snprintf(text, sizeof(text), "the failure of %s: %.200s", lockstep->what, err->message);
	say(lockstep, text, &theirs);
	if (!lockstep->lost.status) /* all have failed alike */
		md_error_set(&lockstep->lost, status, "%s", err->message);
	return status;
}

enum md_status md_lockstep_begin(struct md_lockstep *lockstep, const struct md_rank *rank, const char *test,
				 const char *label, unsigned batch, struct md_error *err)
{
	char text[240];
	*lockstep = (struct md_lockstep){.rank = rank};
	snprintf(lockstep->what, sizeof(lockstep->what), "%s of graph %.100s/%u", test, label, batch);
	snprintf(text, sizeof(text), "the beginning of %s", lockstep->what);
	return say(lockstep, text, err);
}

enum md_status md_lockstep_replay(struct md_lockstep *lockstep, const char *kind, struct md_error *err)
{
	char text[400];
	snprintf(text, sizeof(text), "replay %u in %s (%.100s)", ++lockstep->replays, lockstep->what, kind);
	return say(lockstep, text, err);
}

enum md_status md_lockstep_replayed(struct md_lockstep *lockstep, enum md_status status, struct md_error *err)
{
	char text[240];
	if (status != MD_OK)
		return say_failed(lockstep, status, err);
	snprintf(text, sizeof(text), "the end of replay %u in %s", lockstep->replays, lockstep->what);
	return say(lockstep, text, err);
}

enum md_status md_lockstep_all(struct md_lockstep *lockstep, const char *what, bool *holds, struct md_error *err)
{
	char text[300];
	snprintf(text, sizeof(text), "%s after replay %u in %s", what, lockstep->replays, lockstep->what);
	return step(lockstep, text, holds, err);
}

enum md_status md_lockstep_any(struct md_lockstep *lockstep, const char *what, bool *holds, struct md_error *err)
{
	bool none = !*holds;
	enum md_status status = md_lockstep_all(lockstep, what, &none, err);
	*holds = !none;
	return status;
}

enum md_status md_lockstep_end(struct md_lockstep *lockstep, enum md_status status, struct md_error *err)
{
	char text[240];
	if (status != MD_OK)
		return say_failed(lockstep, status, err);
	snprintf(text, sizeof(text), "the end of %s", lockstep->what);
	return say(lockstep, text, err);
}
