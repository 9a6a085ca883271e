/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher's ranks record, each by itself. */
#include "capture/session/by_rank.h"

#include <stdio.h>
#include <string.h>

#include "base/environment.h"
#include "ranks/rank.h"

enum md_status md_capture_rank(uint32_t *rank, uint32_t *ranks, struct md_error *err)
{
	*rank = *ranks = 0;
	if (!md_environment_is_on("MEDUSA_BY_RANK"))
		return MD_OK;
	MD_FORWARD(md_rank_said(rank, ranks, err));
	if (*ranks == 1)
		*ranks = 0;
	return MD_OK;
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
