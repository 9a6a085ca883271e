/* SPDX-License-Identifier: Apache-2.0 */
#include "backbone/share_lease.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backbone/share_keeper.h"
#include "base/clock.h"
#include "driver/process_checkpoint.h"

#define COMMIT_NS 10000000000ull
#define NOW_NS 500000000ull   /* for an answer that waits for nobody */
#define NEXT_BROKERS 3        /* that are asked in the place of one that has ended while it was asked */
#define HOLD_NS 2000000000ull /* medusa_share_end waits as long */

enum md_status md_share_read_refusal(const struct md_swap_message *answer, struct md_error *err)
{
	uint64_t status = md_swap_message_number(answer, "status");
	return md_error_set(err, status && status <= INT_MAX ? (enum md_status)status : MD_ERR_CORRUPT,
			    "medusa-backbone: %s", md_swap_message_text(answer, "message"));
}

/* Any answer but that it has to wait. */
static enum md_status await(struct md_share *share, bool waits, uint64_t deadline, struct md_swap_message *answer,
			    struct md_error *err)
{
	for (;;) {
		uint64_t now = md_clock_ns();
		if (now > deadline)
			return md_error_set(err, MD_ERR_TIMEOUT,
					    waits ? "another process is still filling backbone %s"
						  : "medusa-backbone does not answer about backbone %s",
					    share->name);
		uint64_t left = (deadline - now) / 1000000 + 1;
		int silence = left < MD_BACKBONE_SILENCE_MS ? (int)left : MD_BACKBONE_SILENCE_MS;
		enum md_status status = md_swap_wire_await(&share->wire, silence, answer, err);
		if (status == MD_ERR_TIMEOUT && silence < MD_BACKBONE_SILENCE_MS)
			continue; /* the deadline */
		if (status != MD_OK)
			return md_error_prefix(err, "medusa-backbone");
		if (!md_swap_message_number(answer, "wait"))
			return md_swap_message_number(answer, "ok") ? MD_OK : md_share_read_refusal(answer, err);
	}
}

static enum md_status connect_broker(struct md_share *share, bool now, struct md_error *err)
{
	char path[PATH_MAX];
	int fd;
	MD_FORWARD(md_backbone_socket(path, err));
	if ((now ? md_swap_wire_connect_now : md_swap_wire_connect)(path, &fd, err) != MD_OK) {
		err->status = MD_ERR_NOT_FOUND; /* whatever the reason: the caller takes memory of its own */
		return md_error_prefix(err, "medusa-backbone is not there");
	}
	return md_share_take_lease(share, fd, err);
}

static enum md_status begin_request(const struct md_share *share, const char *what, struct md_swap_letter *letter,
				    struct md_error *err)
{
	MD_FORWARD(md_swap_letter_begin(letter, err));
	md_json_number(&letter->json, "medusa_backbone", MD_BACKBONE_PROTOCOL);
	md_json_text(&letter->json, "do", what);
	md_json_text(&letter->json, "name", share->name);
	md_json_text(&letter->json, "layout", share->layout);
	md_json_text(&letter->json, "device", share->device_id);
	md_json_number(&letter->json, "bytes", share->asked);
	return MD_OK;
}

/* ---- attaching ---- */

static enum md_status name_device(struct md_share *share, struct md_error *err)
{
	CUuuid uuid;
	MD_FORWARD(md_cuda_call(err, cuDeviceGetUuid_v2, &uuid, share->device));
	md_checkpoint_uuid_text(&uuid, share->device_id);
	return MD_OK;
}

static enum md_status read_attached(struct md_share *share, const struct md_swap_message *answer, struct md_error *err)
{
	const char *id = md_swap_message_text(answer, "id");
	share->fills = md_swap_message_number(answer, "fill") != 0;
	share->asks = md_swap_message_number(answer, "watched") != 0;
	share->bytes = md_swap_message_number(answer, "bytes");
	if (share->wire.passed >= 0 && md_descriptor_keep(&share->memory, md_descriptor_raise(share->wire.passed)))
		share->wire.passed = -1;
	if (share->memory.fd < 0 || share->bytes < share->asked || strlen(id) >= sizeof(share->id))
		return md_error_set(err, MD_ERR_CORRUPT, "medusa-backbone answered without the memory of backbone %s",
				    share->name);
	memcpy(share->id, id, strlen(id) + 1);
	if (share->fills || md_hash_parse(md_swap_message_text(answer, "hash"), &share->hash))
		return MD_OK;
	return md_error_set(err, MD_ERR_CORRUPT, "medusa-backbone: \"hash\" of backbone %s is no hash", share->name);
}

static enum md_status attach(struct md_share *share, uint64_t deadline, struct md_swap_message *answer,
			     struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(name_device(share, err));
	MD_FORWARD(connect_broker(share, !deadline, err));
	MD_FORWARD(begin_request(share, "attach", &letter, err));
	if (!deadline)
		md_json_number(&letter.json, "now", 1);
	MD_FORWARD(md_swap_letter_ask(&letter, share->wire.fd, -1, err));
	MD_FORWARD(await(share, deadline != 0, deadline ? deadline : md_clock_ns() + NOW_NS, answer, err));
	return read_attached(share, answer, err);
}

enum md_status md_share_attach(struct md_share *share, uint64_t deadline, struct md_error *err)
{
	struct md_swap_message *answer = malloc(sizeof(*answer)); /* large */
	if (!answer)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for backbone %s", share->name);
	enum md_status status = attach(share, deadline, answer, err);
	for (unsigned i = 0; status == MD_ERR_TRUNCATED && deadline && i < NEXT_BROKERS; i++) {
		md_share_drop_lease(share);
		status = attach(share, deadline, answer, err);
	}
	free(answer);
	if (status != MD_ERR_TRUNCATED)
		return status;
	err->status = MD_ERR_NOT_FOUND; /* it has ended meanwhile */
	return MD_ERR_NOT_FOUND;
}

/* ---- committing, and giving to another broker ---- */

static enum md_status say_commit(struct md_share *share, bool now, struct md_error *err)
{
	struct md_swap_letter letter;
	char text[MD_HASH_TEXT_BYTES];
	struct md_swap_message *answer = malloc(sizeof(*answer));
	if (!answer)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for backbone %s", share->name);
	md_hash_format(&share->hash, text);
	enum md_status status =
	    md_descriptor_is_ours(&share->lease)
		? md_swap_letter_begin(&letter, err)
		: md_error_set(err, MD_ERR_NOT_FOUND, "the connection to medusa-backbone was closed");
	if (status == MD_OK) {
		md_json_text(&letter.json, "do", "commit");
		md_json_text(&letter.json, "hash", text);
		status = md_swap_letter_ask(&letter, share->wire.fd, -1, err);
	}
	if (status == MD_OK)
		status = await(share, !now, md_clock_ns() + (now ? NOW_NS : COMMIT_NS), answer, err);
	free(answer);
	return status;
}

enum md_status md_share_say_commit(struct md_share *share, bool now, struct md_error *err)
{
	if (share->kept_by)
		return md_share_keeper_commit(share, md_clock_ns() + (now ? NOW_NS : COMMIT_NS), err);
	return say_commit(share, now, err);
}

static enum md_status hold(struct md_share *share, struct md_swap_message *answer, struct md_error *err)
{
	struct md_swap_letter letter;
	char text[MD_HASH_TEXT_BYTES];
	md_hash_format(&share->hash, text);
	MD_FORWARD(connect_broker(share, false, err));
	MD_FORWARD(begin_request(share, "hold", &letter, err));
	md_json_text(&letter.json, "id", share->id);
	md_json_text(&letter.json, "hash", text);
	md_json_number(&letter.json, "whole", share->bytes);
	MD_FORWARD(md_swap_letter_ask(&letter, share->wire.fd, share->memory.fd, err));
	return await(share, true, md_clock_ns() + HOLD_NS, answer, err);
}

enum md_status md_share_hold(struct md_share *share, struct md_error *err)
{
	struct md_swap_message *answer = malloc(sizeof(*answer));
	if (!answer)
		return md_error_set(err, MD_ERR_TIMEOUT, "out of memory for backbone %s", share->name);
	enum md_status status = hold(share, answer, err);
	free(answer);
	if (status == MD_OK)
		md_share_keep(share);
	else
		md_share_drop_lease(share);
	return status;
}
