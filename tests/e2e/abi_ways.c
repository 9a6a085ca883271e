/* SPDX-License-Identifier: Apache-2.0 */
/* For test_abi.sh: which library each function of medusa.h comes from, for each way in which a program finds it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <medusa/medusa.h>
#include <medusa/share.h>
#include <medusa/swap.h>

/* abi_ways NODE [LIBRARY]: functions by version are those of NODE; LIBRARY is opened, too, and asked by its handle. */
#define FUNCTION(name)                                                                                                 \
	{                                                                                                              \
#name, (void *)name                                                                                    \
	}
static const struct {
	const char *name;
	void *linked;
} functions[] = {
    FUNCTION(medusa_bind),          FUNCTION(medusa_fingerprint_add),
    FUNCTION(medusa_graph_get),     FUNCTION(medusa_graph_label),
    FUNCTION(medusa_graph_note),    FUNCTION(medusa_graph_note_get),
    FUNCTION(medusa_graph_output),  FUNCTION(medusa_graph_output_get),
    FUNCTION(medusa_graph_ready),   FUNCTION(medusa_graph_refuse),
    FUNCTION(medusa_graph_scratch), FUNCTION(medusa_graph_want),
    FUNCTION(medusa_kv_capacity),   FUNCTION(medusa_mark),
    FUNCTION(medusa_mode),          FUNCTION(medusa_mode_name),
    FUNCTION(medusa_reason),        FUNCTION(medusa_release),
    FUNCTION(medusa_result_name),   FUNCTION(medusa_role_name),
    FUNCTION(medusa_share),         FUNCTION(medusa_share_commit),
    FUNCTION(medusa_share_end),     FUNCTION(medusa_stage),
    FUNCTION(medusa_stats_read),    FUNCTION(medusa_swap_discardable),
    FUNCTION(medusa_swap_in),       FUNCTION(medusa_swap_list),
    FUNCTION(medusa_swap_needed),   FUNCTION(medusa_swap_out),
    FUNCTION(medusa_swap_release),  FUNCTION(medusa_swap_status),
    FUNCTION(medusa_trigger),
};
#define COUNT (sizeof(functions) / sizeof(functions[0]))

static void say(const char *way, const char *name, void *address)
{
	Dl_info info;
	const char *file = address && dladdr(address, &info) ? info.dli_fname : "nothing";
	const char *slash = strrchr(file, '/');
	printf("%s %s %s\n", way, name, slash ? slash + 1 : file);
}

static void say_all_of(void *handle, const char *way, const char *versioned_way, const char *node)
{
	for (size_t i = 0; i < COUNT; i++) {
		say(way, functions[i].name, dlsym(handle, functions[i].name));
		say(versioned_way, functions[i].name, dlvsym(handle, functions[i].name, node));
	}
}

int main(int argc, char **argv)
{
	void *library = argc > 2 ? dlopen(argv[2], RTLD_LAZY | RTLD_LOCAL) : NULL;
	printf("called mode %s\n", medusa_mode_name(medusa_mode()));
	for (size_t i = 0; i < COUNT; i++)
		say("linked", functions[i].name, functions[i].linked);
	say_all_of(RTLD_DEFAULT, "dlsym", "dlvsym", argv[1]);
	say_all_of(dlopen(NULL, RTLD_LAZY), "dlsym-program", "dlvsym-program", argv[1]);
	if (library)
		say_all_of(library, "dlsym-library", "dlvsym-library", argv[1]);
	return 0;
}
