/* SPDX-License-Identifier: Apache-2.0 */
/* Which shared objects are communication libraries, and how what they make is called. */
#include "driver/maker.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *soname;
	bool is;
} objects[] = {
    {"libnccl.so.2", true},     {"libnccl.so", true},       {"libnccl-net.so", true}, {"libnvshmem_host.so.3", true},
    {"libucp.so.0", true},      {"libuct_cuda.so.0", true}, {"libmpi.so.40", true},   {"libtorch_cuda.so", false},
    {"libcudart.so.13", false}, {"libnccloader.so", false}, {"python3.11", false},    {"", false},
    {"libmine.so.1", true},     {"libmine_too.so", true},   {"libmin.so", false},
};

Test(maker, communication_libraries_are_known_by_their_names)
{
	setenv("MEDUSA_COMMUNICATION_LIBRARIES", ":libmine*.so*::", 1);
	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
		cr_assert_eq(md_maker_matches(objects[i].soname), objects[i].is, "%s", objects[i].soname);
	unsetenv("MEDUSA_COMMUNICATION_LIBRARIES");
	cr_assert(!md_maker_matches("libmine.so.1"), "without the setting");
}

Test(maker, names_of_makers_are_told_from_others)
{
	static const char *const names[] = {"@nccl.0", "@nccl.17", "@nvshmem_host.3"};
	static const char *const others[] = {"nccl.17", "@nccl", "@nccl.", "@.1", "@allocation.3", "@nccl.1x", "", "@"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		cr_assert(md_maker_is_name(names[i]), "%s", names[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		cr_assert(!md_maker_is_name(others[i]), "%s", others[i]);
	cr_assert_eq(md_maker_place_of("@nccl.17"), 17);
	cr_assert_eq(md_maker_place_of("nccl.17"), UINT64_MAX);
	cr_assert_eq(md_maker_place_of("@nccl.captured"), UINT64_MAX);
}

Test(maker, names_of_events_and_of_what_captures_make)
{
	struct md_maker maker = {.name = "nccl"};
	char name[MD_MAKER_NAME_BYTES];
	uint32_t event = 7;
	cr_assert_eq(md_maker_next_event(&maker), 0);
	md_maker_name_event(&maker, md_maker_next_event(&maker), name);
	cr_assert_str_eq(name, "@nccl.event.1");
	cr_assert(md_maker_event_of(name, &event) && event == 1, "%s", name);
	cr_assert(md_maker_event_of("@nccl.event.4294967295", &event) && event == UINT32_MAX);
	static const char *const others[] = {"@nccl.1",
					     "nccl.event.1",
					     "@nccl.event.",
					     "@nccl.event.1x",
					     "@nccl.events.1",
					     "@nccl.event.4294967296",
					     "@",
					     ""};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		cr_assert(!md_maker_event_of(others[i], &event), "%s", others[i]);
	md_maker_name_captured(&maker, name);
	cr_assert_str_eq(name, "@nccl.captured");
	cr_assert(md_maker_is_captured(name) && !md_maker_is_name(name) && !md_maker_is_captured("@nccl.1"));
	cr_assert(!md_maker_is_captured("@.captured") && !md_maker_is_captured("nccl.captured"));
	cr_assert(md_maker_same_library("@nccl.1", "@nccl.event.2") &&
		  md_maker_same_library("@nccl.captured", "@nccl.3"));
	cr_assert(!md_maker_same_library("@nccl.1", "@nccl_x.1") && !md_maker_same_library("nccl.1", "nccl.1"));
}

Test(maker, what_ranks_share_has_one_order_for_both_directions)
{
	char own[MD_MAKER_NAME_BYTES], other[MD_MAKER_NAME_BYTES], late[MD_MAKER_NAME_BYTES];
	md_maker_name_peers(true, own);
	md_maker_name_peers(false, other);
	md_maker_name_peers_late(late);
	cr_assert_str_eq(own, "@peers.own.0");
	cr_assert_str_eq(other, "@peers.other.1");
	cr_assert(md_maker_is_name(own) && md_maker_is_name(other) && md_maker_place_of(other) == 1);
	cr_assert(md_maker_same_library(own, other) && md_maker_same_library(own, late));
	cr_assert(md_maker_is_captured(late) && !md_maker_is_name(late));
	cr_assert(md_maker_is_peers(own) && md_maker_is_peers(late) && !md_maker_is_peers("@peers_.0"));
}

/* The C library is called by this name in the test, so that calls that come from it have a maker. */
Test(maker, a_call_is_attributed_to_the_object_that_it_returns_to)
{
	char name[MD_MAKER_NAME_BYTES];
	setenv("MEDUSA_COMMUNICATION_LIBRARIES", "libc.so*", 1);
	const void *there = (const void *)(uintptr_t)strtoul;
	struct md_maker *maker = md_maker_find(there);
	cr_assert_not_null(maker, "a call from the C library");
	cr_assert_eq(md_maker_find(there), maker, "asked again");
	cr_assert_str_eq(maker->soname, "libc.so.6");
	cr_assert_null(md_maker_find(&maker), "an address in no object");
	md_maker_name_next(maker, name);
	cr_assert_str_eq(name, "@c.0");
	md_maker_name_next(maker, name);
	cr_assert_str_eq(name, "@c.1");
	unsetenv("MEDUSA_COMMUNICATION_LIBRARIES");
}

/* Another object may lie at these addresses later. */
Test(maker, nothing_is_remembered_of_an_object_that_was_unloaded)
{
	char path[4096];
	setenv("MEDUSA_COMMUNICATION_LIBRARIES", "libmdcollective.so*", 1);
	snprintf(path, sizeof(path), "%s/tests/collective/libmdcollective.so.1", getenv("MEDUSA_BUILD"));
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	cr_assert_not_null(library, "%s", dlerror());
	const void *there = dlsym(library, "collective_sum");
	struct md_maker *maker = md_maker_find(there);
	cr_assert_not_null(maker, "a call from the library");
	cr_assert_str_eq(maker->name, "mdcollective");
	cr_assert_eq(md_maker_find(there), maker, "asked again");
	dlclose(library);
	cr_assert_null(md_maker_find(there), "a call from where it was");
	unsetenv("MEDUSA_COMMUNICATION_LIBRARIES");
}
