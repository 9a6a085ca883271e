/* SPDX-License-Identifier: Apache-2.0 */
/* Where the pool's pages should lie: what made-up machines say, and what this machine's kernel makes of it. */
#include "swap/numa.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "swap/pool.h"
#include "tests/hostcuda_fixture.h"

TestSuite(swap_numa, .timeout = 60);

static char sys[64];

/* A file of the made-up machine, with its folders. */
static void put(const char *path, const char *text)
{
	char whole[512];
	if (!*sys) {
		snprintf(sys, sizeof(sys), "/tmp/medusa-numa.XXXXXX");
		cr_assert_not_null(mkdtemp(sys), "a folder");
	}
	snprintf(whole, sizeof(whole), "%s/%s", sys, path);
	for (char *at = whole + strlen(sys) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(whole, 0700);
		*at = '/';
	}
	FILE *file = fopen(whole, "w");
	cr_assert_not_null(file, "%s", whole);
	fputs(text, file);
	fclose(file);
}

static void tear_down(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", sys);
	cr_assert(!*sys || system(command) == 0, "removed");
	*sys = '\0';
}

Test(swap_numa, nodes_are_counted, .fini = tear_down)
{
	static const struct {
		const char *online;
		unsigned nodes;
	} cases[] = {{"0\n", 1},    {"0-1\n", 2}, {"0-3,8\n", 5}, {"0,2\n", 2},     {"", 1},
		     {"junk\n", 1}, {"1-0\n", 1}, {"0-64\n", 1},  {"0-1junk\n", 1}, {"0-63", 64}};
	cr_assert_eq(md_swap_numa_nodes("/nowhere"), 1, "an old kernel, or one without");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		put("devices/system/node/online", cases[i].online);
		cr_assert_eq(md_swap_numa_nodes(sys), cases[i].nodes, "\"%s\": %u", cases[i].online,
			     md_swap_numa_nodes(sys));
	}
}

Test(swap_numa, a_device_is_on_a_node, .fini = tear_down)
{
	put("bus/pci/devices/0001:3b:0a.0/numa_node", "1\n");
	put("bus/pci/devices/0000:00:01.0/numa_node", "-1\n");
	put("bus/pci/devices/0000:00:02.0/numa_node", "64\n");
	put("bus/pci/devices/0000:00:03.0/numa_node", "\n");
	cr_assert_eq(md_swap_numa_node_of(sys, 1, 0x3b, 10), 1, "it is");
	cr_assert_eq(md_swap_numa_node_of(sys, 0, 0x3b, 10), -1, "there is no such device");
	for (unsigned i = 1; i < 4; i++)
		cr_assert_eq(md_swap_numa_node_of(sys, 0, 0, i), -1, "device %u", i);
}

Test(swap_numa, a_device_of_cuda_is_found, .fini = tear_down)
{
	device_open();
	put("bus/pci/devices/0000:01:00.0/numa_node", "3\n"); /* as hostcuda calls its first one */
	cr_assert_eq(md_swap_numa_of_device(sys, &md_cuda, 0), 3, "%d", md_swap_numa_of_device(sys, &md_cuda, 0));
	cr_assert_eq(md_swap_numa_of_device(sys, &md_cuda, 12345), -1, "no device");
}

/* The policy of the page at the address, or -1. */
static int policy_of(void *at, uint64_t *nodes)
{
	int mode = -1;
	unsigned long mask = 0;
	if (syscall(SYS_get_mempolicy, &mode, &mask, MD_SWAP_NODES + 1, at, MPOL_F_ADDR))
		return -1;
	*nodes = mask;
	return mode;
}

Test(swap_numa, the_kernel_knows_where_pages_should_lie)
{
	struct md_swap_pool *pool = NULL, *other = NULL;
	struct md_error err = {0};
	uint64_t nodes = 0;
	int fd = -1;
	cr_assert_eq(md_swap_pool_create(8 * MD_SWAP_BLOCK, &fd, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_swap_pool_open(fd, &pool, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_swap_pool_open(fd, &other, &err), MD_OK, "%s", err.message);
	if (policy_of(md_swap_pool_bytes(pool, 0), &nodes) < 0)
		cr_skip("this kernel has no get_mempolicy: %s", strerror(errno));
	cr_assert(md_swap_pool_prefer(pool, 0), "node 0 is everywhere");
	cr_assert_eq(policy_of(md_swap_pool_bytes(pool, 7), &nodes), MPOL_PREFERRED, "the last block");
	cr_assert_eq(nodes, 1, "on node 0");
	cr_assert_eq(policy_of(md_swap_pool_bytes(other, 3), &nodes), MPOL_PREFERRED, "another mapping of the pool");
	cr_assert(md_swap_pool_prefer(other, 0), "the same again");
	md_swap_pool_close(pool);
	md_swap_pool_close(other);
	cr_assert_eq(md_swap_pool_create(8 * MD_SWAP_BLOCK, &fd, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_swap_pool_open(fd, &pool, &err), MD_OK, "%s", err.message);
	if (md_swap_numa_nodes("/sys") < MD_SWAP_NODES)
		cr_assert_not(md_swap_pool_prefer(pool, MD_SWAP_NODES - 1), "there is no such node");
	cr_assert(md_swap_pool_prefer(pool, 0), "and that is forgotten");
	cr_assert_eq(policy_of(md_swap_pool_bytes(pool, 0), &nodes), MPOL_PREFERRED, "one node");
	md_swap_pool_close(pool);
}
