/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher's ranks record, each by itself; and whether they meet for what they can only test together. */
#define MD_LOG_DOMAIN "capture"
#include "capture/session/by_rank.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/environment.h"
#include "base/setting.h"
#include "base/log.h"

enum md_status md_capture_rank(uint32_t *rank, uint32_t *ranks, struct md_error *err)
{
	*rank = *ranks = 0;
	if (!md_setting_is_on("MEDUSA_BY_RANK", false, false, "nothing is recorded by rank"))
		return MD_OK;
	MD_FORWARD(md_rank_said(rank, ranks, err));
	if (*ranks == 1)
		*ranks = 0;
	return MD_OK;
}

static struct md_rank own_rank;

static void read_rank(void)
{
	struct md_error err = {0};
	if (md_rank_read(&own_rank, &err) != MD_OK)
		md_warn("graphs that communicate are not tested, as this rank does not meet the others: %s",
			err.message);
}

const struct md_rank *md_capture_together(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, read_rank);
	return own_rank.meets ? &own_rank : NULL;
}

static bool is_rank;

/* Where the variables are unreadable, others may wait for this process. */
static void read_is_rank(void)
{
	uint32_t rank, ranks;
	is_rank = md_rank_said(&rank, &ranks, NULL) != MD_OK || ranks > 1;
}

bool md_capture_is_rank(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, read_is_rank);
	return is_rank;
}

bool md_capture_path(const char *variable, char *out, size_t room)
{
	uint32_t rank, ranks;
	if (!md_environment_path(variable, out, room) || md_capture_rank(&rank, &ranks, NULL) != MD_OK)
		return false;
	size_t length = strlen(out);
	return !ranks || (size_t)snprintf(out + length, room - length, ".rank-%u-of-%u", rank, ranks) < room - length;
}

const char *md_capture_kv_text(char *out, size_t room)
{
	uint32_t rank, ranks;
	const char *text = md_environment_get("MEDUSA_KV_BYTES");
	if (!text || md_capture_rank(&rank, &ranks, NULL) != MD_OK)
		return text;
	for (; ranks && rank && text; rank--) {
		text = strchr(text, ',');
		text += text != NULL;
	}
	if (text)
		snprintf(out, room, "%.*s", (int)strcspn(text, ","), text);
	return text ? out : NULL;
}
