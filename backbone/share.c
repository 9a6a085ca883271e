/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of medusa/share.h, in each library with those of medusa.h: they ask medusa-backbone and map what it gives. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "backbone/share_wire.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/uncancelled.h"
#include "driver/cuda_driver.h"
#include "driver/device_hash.h"
#include "driver/process_checkpoint.h"
#include "medusa/share.h"
#include "swap/wire.h"

#define DEADLINE_NS 600000000000ull
#define COMMIT_MS 10000

struct shared {
	struct md_swap_wire wire; /* the lease: closed when the memory is unmapped */
	CUdeviceptr address;
	uint64_t bytes, asked;
	CUdevice device;
	bool fills, busy; /* busy: a call works on it */
	char name[MD_BACKBONE_NAME_MOST + 1];
	struct shared *next;
};

/* Held for moments only: one thread may have to commit what another process needs before this one gets what it waits for. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all MD_GUARDED_BY(lock);

/* ---- forks ---- */

static void before_fork(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_lock(&lock);
}

static void in_parent(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_unlock(&lock);
}

/* A child has no device memory, and must not keep its parent's leases. */
static void in_child(void) MD_LOCKS_UNCHECKED
{
	for (struct shared *one = all; one; one = one->next)
		if (one->wire.fd >= 0)
			close(one->wire.fd);
	all = NULL;
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- asking ---- */

static enum md_status read_refusal(const struct md_swap_message *answer, struct md_error *err)
{
	uint64_t status = md_swap_message_number(answer, "status");
	return md_error_set(err, status && status <= INT_MAX ? (enum md_status)status : MD_ERR_CORRUPT,
			    "medusa-backbone: %s", md_swap_message_text(answer, "message"));
}

/* Any answer but that it has to wait. */
static enum md_status await(struct shared *one, uint64_t deadline, struct md_swap_message *answer, struct md_error *err)
{
	for (;;) {
		if (md_clock_ns() > deadline)
			return md_error_set(err, MD_ERR_TIMEOUT, "another process is still filling backbone %s",
					    one->name);
		if (md_swap_wire_await(&one->wire, MD_BACKBONE_SILENCE_MS, answer, err) != MD_OK)
			return md_error_prefix(err, "medusa-backbone");
		if (!md_swap_message_number(answer, "wait"))
			return md_swap_message_number(answer, "ok") ? MD_OK : read_refusal(answer, err);
	}
}

static enum md_status ask(struct shared *one, const char *layout, uint64_t deadline, struct md_swap_message *answer,
			  struct md_error *err)
{
	struct md_swap_letter letter;
	char path[PATH_MAX], device[MD_CHECKPOINT_UUID_BYTES];
	CUuuid uuid;
	int fd;
	MD_FORWARD(md_cuda_call(err, cuDeviceGetUuid_v2, &uuid, one->device));
	md_checkpoint_uuid_text(&uuid, device);
	MD_FORWARD(md_backbone_socket(path, err));
	if (md_swap_wire_connect(path, &fd, err) != MD_OK) {
		err->status = MD_ERR_NOT_FOUND; /* whatever the reason: the caller takes memory of its own */
		return md_error_prefix(err, "medusa-backbone is not there");
	}
	md_swap_wire_init(&one->wire, fd);
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "medusa_backbone", MD_BACKBONE_PROTOCOL);
	md_json_text(&letter.json, "do", "attach");
	md_json_text(&letter.json, "name", one->name);
	md_json_text(&letter.json, "layout", layout);
	md_json_text(&letter.json, "device", device);
	md_json_number(&letter.json, "bytes", one->asked);
	MD_FORWARD(md_swap_letter_send(&letter, fd, -1, err));
	return await(one, deadline, answer, err);
}

/* ---- mapping ---- */

static enum md_status allow(const struct shared *one, CUmemAccess_flags flags, struct md_error *err)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = one->device}, .flags = flags};
	return md_cuda_call(err, cuMemSetAccess, one->address, one->bytes, &access, 1);
}

static enum md_status map(struct shared *one, int fd, struct md_error *err)
{
	CUmemGenericAllocationHandle handle;
	MD_FORWARD(md_cuda_call(err, cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
				CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	enum md_status status = md_cuda_call(err, cuMemAddressReserve, &one->address, one->bytes, 0, 0, 0);
	if (status == MD_OK) {
		status = md_cuda_call(err, cuMemMap, one->address, one->bytes, 0, handle, 0);
		if (status == MD_OK) {
			status = allow(
			    one, one->fills ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ, err);
			if (status != MD_OK)
				md_cuda.cuMemUnmap(one->address, one->bytes);
		}
		if (status != MD_OK)
			md_cuda.cuMemAddressFree(one->address, one->bytes);
	}
	md_cuda.cuMemRelease(handle); /* the mapping holds the memory */
	return status;
}

static enum md_status unmap(struct shared *one, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuMemUnmap, one->address, one->bytes));
	md_cuda.cuMemAddressFree(one->address, one->bytes);
	return MD_OK;
}

/* The bytes that the caller has asked for; those behind them, up to a granule, are nobody's. */
static enum md_status hash(const struct shared *one, struct md_hash *hash, struct md_error *err)
{
	struct md_device_hasher hasher = {.driver = NULL};
	struct md_hash_range range = {.address = one->address, .size = one->asked};
	size_t failed;
	CUstream stream;
	MD_FORWARD(md_cuda_call(err, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING));
	md_device_hasher_open(&hasher, stream);
	enum md_status status = md_device_hash(&hasher, stream, &range, 1, &failed, err);
	md_device_hasher_close(&hasher);
	md_cuda.cuStreamDestroy_v2(stream);
	*hash = range.hash;
	return status;
}

static enum md_status verify(const struct shared *one, const struct md_swap_message *answer, struct md_error *err)
{
	struct md_hash committed, found;
	if (!md_hash_parse(md_swap_message_text(answer, "hash"), &committed))
		return md_error_set(err, MD_ERR_CORRUPT, "medusa-backbone: \"hash\" of backbone %s is no hash",
				    one->name);
	MD_FORWARD(hash(one, &found, err));
	if (md_hash_equal(&committed, &found))
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_MISMATCH,
	    "backbone %s is not what was committed: a process has changed it; end the processes that have it, "
	    "and drop it",
	    one->name);
}

static enum md_status take(struct shared *one, const char *layout, uint64_t deadline, bool check,
			   struct md_swap_message *answer, struct md_error *err)
{
	MD_FORWARD(ask(one, layout, deadline, answer, err));
	one->fills = md_swap_message_number(answer, "fill") != 0;
	one->bytes = md_swap_message_number(answer, "bytes");
	if (one->wire.passed < 0 || one->bytes < one->asked)
		return md_error_set(err, MD_ERR_CORRUPT, "medusa-backbone answered without the memory of backbone %s",
				    one->name);
	enum md_status status = map(one, one->wire.passed, err);
	close(one->wire.passed);
	one->wire.passed = -1;
	if (status != MD_OK)
		return md_error_prefix(err, "mapping backbone %s", one->name);
	if (check && !one->fills && (status = verify(one, answer, err)) != MD_OK)
		unmap(one, NULL);
	return status;
}

/* ---- the interface ---- */

static enum md_status check_share(const char *name, const char *layout, size_t bytes,
				  const struct medusa_share_options *options, struct medusa_share_options *taken,
				  const void *address, const void *filled, struct md_error *err)
{
	*taken = (struct medusa_share_options){0};
	if (!name || !layout || !address || !filled || !bytes)
		return md_error_set(err, MD_ERR_INVALID, "medusa_share: %s",
				    !name      ? "name is NULL"
				    : !layout  ? "layout is NULL"
				    : !address ? "address is NULL"
				    : !filled  ? "filled is NULL"
					       : "bytes is 0");
	MD_FORWARD(md_backbone_check_name(name, err));
	if (strlen(layout) > MD_BACKBONE_LAYOUT_MOST)
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "medusa_share: layout has %zu bytes, and at most %u can be given: give a hash of it",
		    strlen(layout), MD_BACKBONE_LAYOUT_MOST);
	if (!options)
		return MD_OK;
	if (options->size < sizeof(options->size))
		return md_error_set(err, MD_ERR_INVALID, "medusa_share: the size of options is %zu; set it by sizeof",
				    options->size);
	for (size_t at = sizeof(*taken); at < options->size; at++)
		if (((const unsigned char *)options)[at])
			return md_error_set(
			    err, MD_ERR_INVALID,
			    "medusa_share: options has fields that this library does not know: set them to 0, "
			    "or use a later release");
	memcpy(taken, options, options->size < sizeof(*taken) ? options->size : sizeof(*taken));
	return MD_OK;
}

/* ---- the list ---- */

static struct shared *begin(const char *name, size_t bytes)
{
	struct shared *one = calloc(1, sizeof(*one));
	if (!one)
		return NULL;
	md_swap_wire_init(&one->wire, -1);
	memcpy(one->name, name, strlen(name) + 1);
	one->asked = bytes;
	one->busy = true;
	pthread_mutex_lock(&lock);
	one->next = all;
	all = one;
	pthread_mutex_unlock(&lock);
	return one;
}

static void forget(struct shared *one)
{
	pthread_mutex_lock(&lock);
	struct shared **at = &all;
	while (*at && *at != one)
		at = &(*at)->next;
	if (*at)
		*at = one->next;
	pthread_mutex_unlock(&lock);
	md_swap_wire_finish(&one->wire);
	free(one);
}

/* What lies at the address, for this thread alone until it is not busy any more. */
static struct shared *claim(CUdeviceptr address, bool fills)
{
	pthread_mutex_lock(&lock);
	struct shared *one = all;
	while (one && (one->busy || one->address != address || (fills && !one->fills)))
		one = one->next;
	if (one)
		one->busy = true;
	pthread_mutex_unlock(&lock);
	return one;
}

static void end(struct shared *one)
{
	pthread_mutex_lock(&lock);
	one->busy = false;
	pthread_mutex_unlock(&lock);
}

/* ---- the calls ---- */

static enum md_status can_share(struct md_error *err)
{
	enum medusa_mode mode = medusa_mode();
	if (mode == MEDUSA_MODE_CAPTURE || mode == MEDUSA_MODE_VERIFY)
		return md_error_set(err, MD_ERR_NOT_FOUND, "a %s shares nothing: it may change all memory",
				    mode == MEDUSA_MODE_CAPTURE ? "capture" : "verification");
	MD_FORWARD(md_cuda_load(err));
	if (!md_cuda.cuMemImportFromShareableHandle || !md_cuda.cuMemSetAccess || !md_cuda.cuDeviceGetUuid_v2)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "the driver has no virtual memory management");
	return MD_OK;
}

static enum md_status share(struct shared *one, const char *layout, const struct medusa_share_options *options,
			    struct md_swap_message *answer, struct md_error *err)
{
	uint64_t patience = options->deadline_ns ? options->deadline_ns : DEADLINE_NS, now = md_clock_ns();
	CUcontext context;
	MD_FORWARD(can_share(err));
	MD_FORWARD(md_cuda_call(err, cuCtxGetCurrent, &context));
	if (!context)
		return md_error_set(err, MD_ERR_INVALID, "medusa_share: no context is current in this thread");
	MD_FORWARD(md_cuda_call(err, cuCtxGetDevice, &one->device));
	return take(one, layout, patience > UINT64_MAX - now ? UINT64_MAX : now + patience, options->verify != 0,
		    answer, err);
}

MD_EXPORT int medusa_share(const char *name, const char *layout, size_t bytes,
			   const struct medusa_share_options *options, medusa_deviceptr *address, int *filled)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct md_error err = {0};
	struct medusa_share_options taken;
	enum md_status status = check_share(name, layout, bytes, options, &taken, address, filled, &err);
	if (status != MD_OK)
		return md_api_answer(status, &err);
	MD_UNCANCELLED;
	pthread_once(&once, watch_forks);
	struct md_swap_message *answer = malloc(sizeof(*answer)); /* large */
	struct shared *one = answer ? begin(name, bytes) : NULL;
	status = one ? share(one, layout, &taken, answer, &err)
		     : md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for backbone %s", name);
	free(answer);
	if (status == MD_OK) {
		*address = one->address;
		*filled = !one->fills;
		end(one);
	} else if (one)
		forget(one);
	return md_api_answer(status, &err);
}

/*
 * Read-only before anybody else has it, and from then on, also after a failure: the broker may have heard of the commit
 * although its answer was lost.
 */
static enum md_status commit(struct shared *one, struct md_swap_message *answer, struct md_error *err)
{
	struct md_swap_letter letter;
	struct md_hash found;
	char text[MD_HASH_TEXT_BYTES];
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(hash(one, &found, err));
	md_hash_format(&found, text);
	MD_FORWARD(allow(one, CU_MEM_ACCESS_FLAGS_PROT_READ, err));
	one->fills = false;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_text(&letter.json, "do", "commit");
	md_json_text(&letter.json, "hash", text);
	enum md_status status = md_swap_letter_send(&letter, one->wire.fd, -1, err);
	if (status == MD_OK)
		status = await(one, md_clock_ns() + (uint64_t)COMMIT_MS * 1000000, answer, err);
	if (status == MD_OK)
		return MD_OK;
	err->status = MD_ERR_NOT_FOUND;
	return md_error_prefix(err, "backbone %s is this process's own, and read-only", one->name);
}

MD_EXPORT int medusa_share_commit(medusa_deviceptr address)
{
	struct md_error err = {0};
	MD_UNCANCELLED;
	struct md_swap_message *answer = malloc(sizeof(*answer));
	if (!answer)
		return md_api_refuse(MD_ERR_NO_MEMORY, "out of memory for a message to medusa-backbone");
	struct shared *one = claim(address, true);
	enum md_status status =
	    one ? commit(one, answer, &err)
		: md_error_set(&err, MD_ERR_NOT_FOUND,
			       "medusa_share_commit: %#llx is not the address of memory that this process fills",
			       (unsigned long long)address);
	if (one)
		end(one);
	free(answer);
	return md_api_answer(status, &err);
}

MD_EXPORT int medusa_share_end(medusa_deviceptr address)
{
	struct md_error err = {0};
	MD_UNCANCELLED;
	struct shared *one = claim(address, false);
	enum md_status status =
	    one ? unmap(one, &err)
		: md_error_set(&err, MD_ERR_NOT_FOUND, "medusa_share_end: %#llx is not the address of shared memory",
			       (unsigned long long)address);
	if (status == MD_OK)
		forget(one);
	else if (one)
		end(one);
	return md_api_answer(status, &err);
}
