/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of medusa/share.h, in each library with those of medusa.h: they ask medusa-backbone and map what it gives. */
#include <string.h>

#include "api/api.h"
#include "backbone/share_keeper.h"
#include "backbone/share_lease.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/setting.h"
#include "base/uncancelled.h"
#include "driver/cuda_driver.h"
#include "driver/device_hash.h"
#include "medusa/share.h"

#define DEADLINE_NS 600000000000ull

/* ---- mapping ---- */

static enum md_status allow(const struct md_share *one, CUmemAccess_flags flags, struct md_error *err)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = one->device}, .flags = flags};
	return md_cuda_call(err, cuMemSetAccess, one->address, one->bytes, &access, 1);
}

static enum md_status map(struct md_share *one, struct md_error *err)
{
	CUmemGenericAllocationHandle handle;
	MD_FORWARD(md_cuda_call(err, cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)one->memory.fd,
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

static enum md_status unmap(struct md_share *one, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuMemUnmap, one->address, one->bytes));
	md_cuda.cuMemAddressFree(one->address, one->bytes);
	return MD_OK;
}

/* The bytes that the caller has asked for; those behind them, up to a granule, are nobody's. */
static enum md_status hash(const struct md_share *one, struct md_hash *hash, struct md_error *err)
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

static enum md_status verify(const struct md_share *one, struct md_error *err)
{
	struct md_hash found;
	MD_FORWARD(hash(one, &found, err));
	if (md_hash_equal(&one->hash, &found))
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_MISMATCH,
	    "backbone %s is not what was committed: a process has changed it; end the processes that have it, "
	    "and drop it",
	    one->name);
}

static enum md_status take(struct md_share *one, uint64_t deadline, bool check, struct md_error *err)
{
	MD_FORWARD(md_share_attach(one, deadline, err));
	if (map(one, err) != MD_OK)
		return md_error_prefix(err, "mapping backbone %s", one->name);
	enum md_status status = check && !one->fills ? verify(one, err) : MD_OK;
	if (status != MD_OK)
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

static enum md_status share(struct md_share *one, const struct medusa_share_options *options, struct md_error *err)
{
	uint64_t patience = options->deadline_ns ? options->deadline_ns : DEADLINE_NS, now = md_clock_ns();
	CUcontext context;
	MD_FORWARD(can_share(err));
	MD_FORWARD(md_cuda_call(err, cuCtxGetCurrent, &context));
	if (!context)
		return md_error_set(err, MD_ERR_INVALID, "medusa_share: no context is current in this thread");
	MD_FORWARD(md_cuda_call(err, cuCtxGetDevice, &one->device));
	return take(one, patience > UINT64_MAX - now ? UINT64_MAX : now + patience, options->verify != 0, err);
}

static bool is_required(void)
{
	return md_setting_is_on("MEDUSA_BACKBONE_REQUIRED", false, true, "memory of one's own is not allowed");
}

/* A process may go on with memory of its own after any failure, for which whoever has started it may have left no room. */
static enum md_status explain(enum md_status status, struct md_error *err)
{
	if (status == MD_OK || !is_required())
		return status;
	err->status = MD_ERR_NO_MEMORY;
	return md_error_prefix(err, "there is no room for memory of one's own (MEDUSA_BACKBONE_REQUIRED)");
}

MD_EXPORT int medusa_share(const char *name, const char *layout, size_t bytes,
			   const struct medusa_share_options *options, medusa_deviceptr *address, int *filled)
{
	struct md_error err = {0};
	struct medusa_share_options taken;
	enum md_status status = check_share(name, layout, bytes, options, &taken, address, filled, &err);
	if (status != MD_OK)
		return md_api_answer(status, &err);
	MD_UNCANCELLED;
	struct md_share *one = md_share_begin(name, layout, bytes);
	status = one ? share(one, &taken, &err)
		     : md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for backbone %s", name);
	if (status == MD_OK) {
		*address = one->address;
		*filled = !one->fills;
		md_share_keep(one);
		md_share_end(one);
		md_share_watch();
	} else if (one)
		md_share_forget(one);
	return md_api_answer(explain(status, &err), &err);
}

/*
 * Read-only before anybody else has it, and from then on, also after a failure: the broker may have heard of the commit
 * although its answer was lost. A broker that comes later is given it.
 */
static enum md_status commit(struct md_share *one, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(hash(one, &one->hash, err));
	MD_FORWARD(allow(one, CU_MEM_ACCESS_FLAGS_PROT_READ, err));
	one->fills = false;
	if (md_share_say_commit(one, false, err) == MD_OK)
		return MD_OK;
	err->status = MD_ERR_NOT_FOUND;
	return md_error_prefix(err, "backbone %s is this process's own, and read-only", one->name);
}

MD_EXPORT int medusa_share_commit(medusa_deviceptr address)
{
	struct md_error err = {0};
	MD_UNCANCELLED;
	struct md_share *one = md_share_claim(address, true);
	enum md_status status =
	    one ? commit(one, &err)
		: md_error_set(&err, MD_ERR_NOT_FOUND,
			       "medusa_share_commit: %#llx is not the address of memory that this process fills",
			       (unsigned long long)address);
	if (one)
		md_share_end(one);
	return md_api_answer(status, &err);
}

MD_EXPORT int medusa_share_end(medusa_deviceptr address)
{
	struct md_error err = {0};
	MD_UNCANCELLED;
	struct md_share *one = md_share_claim(address, false);
	enum md_status status =
	    one ? unmap(one, &err)
		: md_error_set(&err, MD_ERR_NOT_FOUND, "medusa_share_end: %#llx is not the address of shared memory",
			       (unsigned long long)address);
	if (status == MD_OK)
		md_share_forget(one);
	else if (one)
		md_share_end(one);
	return md_api_answer(status, &err);
}
