/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's buffers, before and after replays. */
#ifndef MD_RESTORE_VERIFY_BUFFERS_H
#define MD_RESTORE_VERIFY_BUFFERS_H

#include "base/sample.h"
#include "driver/device_session.h"
#include "restore/restore.h"
#include "restore/verify/doubt.h"
#include "restore/verify/kept_session.h"

#define MD_VERIFY_CHUNK MD_DEVICE_CHUNK

struct md_verify_buffer {
	const char *name; /* the engine's */
	CUdeviceptr address;
	uint64_t size;
	bool state, output, sampled;
	bool mapped; /* a kernel may go there */
	enum md_element_type type;
	struct md_sample sample;
	CUdeviceptr copy, live; /* in the session's slabs: contents before, and what the live graph left; or 0 */
	bool gathered;          /* sampled: the windows are in the memory's room on the device, */
	uint64_t windows_at;    /* from there on; */
	uint8_t *windows;       /* or here, as they were before the live replay */
	uint8_t **chunks;       /* neither: contents before; NULL entry: zeros */
};

struct md_verify_span { /* a part that the live graph wrote, or a window; no longer than a chunk */
	uint32_t buffer, size;
	uint64_t offset;
	const uint8_t *before; /* not owned; NULL: sampled, not put back */
	uint8_t *live;
	CUdeviceptr device_live; /* instead of `live`: in the room for windows */
};

/* A part that is compared on the device, many of them in one launch. */
struct md_verify_range {
	uint32_t buffer;
	uint64_t offset, size; /* in the buffer */
	CUdeviceptr now, live;
	size_t flag; /* of its first grain */
};

/*
 * The buffers that graphs may write: their old bytes, and those that the live graph left. They are kept whole on the
 * device as far as there is room, else on the host where the live graph wrote. State that does not fit (a KV cache that
 * takes 90 % of the device) is sampled: it is taken to be written idempotently, is compared in windows, and is not put
 * back. A second live replay after the restored ones must leave the same windows, and overwrites what the restored ones
 * have left.
 */
struct md_verify_memory {
	struct md_verify_buffer *buffers;
	uint32_t count, sampled_count;
	struct md_verify_span *spans;
	size_t span_count, span_room;
	struct md_verify_session session;
	CUdeviceptr room; /* for windows: as they were before the live replay, then as that left them */
	uint64_t room_bytes;
	struct md_verify_range *ranges; /* of the next launch */
	size_t range_count, range_room, flags;
	bool changed; /* the live replay has changed bound memory */
	struct md_verify_buffer *constants;
	uint32_t constant_count;
	struct md_hash *constant_hashes;
	struct md_verify_doubt *doubt; /* not owned; notes every difference; may be NULL */
};

enum md_status md_verify_memory_init(struct md_verify_memory *memory, struct md_restore *r, struct md_error *err)
    MD_REQUIRES(md_restore_work);
void md_verify_memory_finish(struct md_verify_memory *memory) MD_REQUIRES(md_restore_work);
/* Before the live replay. */
enum md_status md_verify_memory_save(struct md_verify_memory *memory, CUstream stream, struct md_error *err);
/* After the live replay: keeps what it wrote, and puts everything back. */
enum md_status md_verify_memory_take_live(struct md_verify_memory *memory, CUstream stream, struct md_error *err);
/*
 * After another replay: MD_ERR_MISMATCH names the buffer, the offset and both values of the first difference from what
 * the live graph left. Looks at the parts that the live graph wrote, and puts them back.
 */
enum md_status md_verify_memory_compare(struct md_verify_memory *memory, CUstream stream, uint64_t *compared,
					struct md_error *err);
/* After a replay: MD_ERR_MISMATCH when it wrote where the live graph did not. Puts everything back. */
enum md_status md_verify_memory_check_rest(struct md_verify_memory *memory, CUstream stream, struct md_error *err);
/* Bytes of host memory for copies: MEDUSA_PROBE_LIMIT, or what the host has to spare. */
uint64_t md_verify_memory_room(void);
/* "kv: 134538092544 bytes, sampled"; empty when everything is compared whole. */
void md_verify_memory_name_sampled(const struct md_verify_memory *memory, char *text, size_t size);
/* live, now: size bytes at the buffer's offset; differs: set to the first difference. */
void md_verify_note_difference(struct md_verify_memory *memory, uint32_t buffer, uint64_t offset, const uint8_t *live,
			       const uint8_t *now, size_t size, struct md_error *differs);

#endif
