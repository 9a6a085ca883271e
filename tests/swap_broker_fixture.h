/* SPDX-License-Identifier: Apache-2.0 */
/* The broker of constant memory, which the test is: what it holds, and what it does not do. */
#ifndef TESTS_SWAP_BROKER_FIXTURE_H
#define TESTS_SWAP_BROKER_FIXTURE_H

#include <criterion/criterion.h>
#include <unistd.h>

#include "swap/equal.h"
#include "swap/layer.h"
#include "swap/pool.h"
#include "tests/hostcuda_fixture.h"

#define BYTES (2 * MD_SWAP_BLOCK)
enum { MOST = 2, FLOATS = BYTES / 4 };

/* One for what each allocation holds. */
static struct memory {
	CUmemGenericAllocationHandle handle;
	int fd;
	bool committed;
	struct md_hash key;
	unsigned leases;
} memory[MOST];
static struct broker {
	bool absent, busy, silent;
	unsigned attaches, commits;
} broker;
static CUdeviceptr constant[MOST]; /* the engine's */
static void (*meanwhile)(void);    /* while the broker is asked */
static struct md_cuda driver;      /* without failures */

static CUmemAccess_flags right_at(CUdeviceptr address)
{
	unsigned long long flags = 0;
	const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	ok(driver.cuMemGetAccess(&flags, &here, address));
	return (CUmemAccess_flags)flags;
}

static void make(struct memory *one, const struct md_hash *key, uint64_t bytes)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	ok(driver.cuMemCreate(&one->handle, bytes, &prop, 0));
	ok(driver.cuMemExportToShareableHandle(&one->fd, one->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	one->key = *key;
}

static void drop(struct memory *one)
{
	if (!one->handle)
		return;
	close(one->fd);
	ok(driver.cuMemRelease(one->handle));
	*one = (struct memory){0};
}

static struct memory *find_or_make(const struct md_hash *key, uint64_t bytes)
{
	struct memory *one = memory;
	while (one->handle && !md_hash_equal(&one->key, key))
		cr_assert_lt(++one - memory, MOST, "memory for what the test does not have");
	if (!one->handle)
		make(one, key, bytes);
	return one;
}

enum md_status md_swap_equal_attach(CUdevice device, const struct md_hash *key, uint64_t bytes, struct md_share **lease,
				    int *fd, bool *fills, struct md_error *err)
{
	cr_assert_eq(device, 0, "device %d", device);
	broker.attaches++;
	if (meanwhile)
		meanwhile();
	if (broker.absent)
		return md_error_set(err, MD_ERR_NOT_FOUND, "there is no broker");
	struct memory *one = broker.busy ? NULL : find_or_make(key, bytes);
	if (!one || (one->leases && !one->committed))
		return md_error_set(err, MD_ERR_BUSY, "it is being filled");
	one->leases++;
	*lease = (struct md_share *)one;
	*fd = one->fd;
	*fills = !one->committed;
	return MD_OK;
}

enum md_status md_swap_equal_commit(struct md_share *lease, struct md_error *err)
{
	struct memory *one = (struct memory *)lease;
	broker.commits++;
	cr_assert_eq(right_at(constant[one - memory]), CU_MEM_ACCESS_FLAGS_PROT_READ, "it was not made read-only");
	if (broker.silent)
		return md_error_set(err, MD_ERR_TIMEOUT, "no answer");
	one->committed = true;
	return MD_OK;
}

void md_swap_equal_end(struct md_share *lease)
{
	struct memory *one = (struct memory *)lease;
	if (!--one->leases)
		drop(one);
}

#endif
