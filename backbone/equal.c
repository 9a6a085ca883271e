/* SPDX-License-Identifier: Apache-2.0 */
/* Leases for constant memory of engines that medusa-swap takes away: named by what it holds. */
#include "swap/equal.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>

#include "backbone/share_keeper.h"
#include "backbone/share_lease.h"
#include "base/clock.h"

#define OWN_NS 15000000000ull /* for room of one's own; who is asked for it gives up before */

/* An address that no memory of a device has, by which the list finds the lease. */
static CUdeviceptr number_of(const struct md_share *lease)
{
	return (CUdeviceptr)(uintptr_t)lease;
}

static enum md_status check(const struct md_share *one, const struct md_hash *key, uint64_t bytes, struct md_error *err)
{
	if (one->bytes == bytes && (one->fills || md_hash_equal(&one->hash, key)))
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH,
			    "medusa-backbone has %" PRIu64
			    " bytes as %s of layout %s, which are not what was asked for",
			    one->bytes, one->name, one->layout);
}

static atomic_uint leases;

/* A lease takes a descriptor, that of the memory. The engine needs some for itself, and the driver to map memory of its own instead. */
static enum md_status check_descriptors(struct md_error *err)
{
	struct rlimit limit;
	uint64_t taken = atomic_load(&leases);
	if (getrlimit(RLIMIT_NOFILE, &limit) || taken < limit.rlim_cur / 4)
		return MD_OK;
	return md_error_set(err, MD_ERR_UNSUPPORTED,
			    "shared memory takes %" PRIu64 " descriptors already, a quarter of those that this process "
			    "may have (ulimit -n %" PRIu64 ")",
			    taken, (uint64_t)limit.rlim_cur);
}

enum md_status md_swap_equal_attach(CUdevice device, const struct md_hash *key, uint64_t bytes, struct md_share **lease,
				    int *fd, bool *fills, struct md_error *err)
{
	char name[MD_BACKBONE_NAME_MOST + 1], layout[MD_HASH_TEXT_BYTES];
	MD_FORWARD(check_descriptors(err));
	snprintf(name, sizeof(name), "equal/%" PRIu64, bytes);
	md_hash_format(key, layout);
	struct md_share *one = md_share_begin(name, layout, bytes);
	if (!one)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a lease of %" PRIu64 " bytes", bytes);
	one->device = device;
	enum md_status status = md_share_attach(one, 0, err);
	if (status == MD_OK)
		status = check(one, key, bytes, err);
	if (status != MD_OK) {
		md_share_forget(one);
		return status;
	}
	one->address = number_of(one);
	one->hash = *key;
	atomic_fetch_add(&leases, 1);
	*lease = one;
	*fd = one->memory.fd;
	*fills = one->fills;
	md_share_keep(one);
	md_share_end(one);
	md_share_watch();
	return MD_OK;
}

/* As medusa_share_commit: the broker may have heard of it although its answer was lost. */
enum md_status md_swap_equal_commit(struct md_share *lease, struct md_error *err)
{
	struct md_share *one = md_share_claim(number_of(lease), true);
	if (!one)
		return md_error_set(err, MD_ERR_NOT_FOUND, "this process fills no such memory");
	one->fills = false;
	enum md_status status = md_share_say_commit(one, true, err);
	md_share_end(one);
	return status;
}

/* Of memory that was freed meanwhile nothing is known, and nothing is wanted. */
enum md_status md_swap_equal_own(struct md_share *lease, bool *alone, struct md_error *err)
{
	struct md_share *one = md_share_claim(number_of(lease), false);
	*alone = false;
	if (!one)
		return md_error_set(err, MD_ERR_NOT_FOUND, "this process has no such memory");
	enum md_status status = one->asks ? md_share_keeper_own(one, md_clock_ns() + OWN_NS, alone, err) : MD_OK;
	md_share_end(one);
	return status;
}

void md_swap_equal_end(struct md_share *lease)
{
	struct md_share *one = md_share_claim(number_of(lease), false);
	if (!one)
		return;
	atomic_fetch_sub(&leases, 1);
	md_share_forget(one);
}
