/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's statements about memory that medusa-swap takes away; they have no effect without medusa-swap. */
#include <stdbool.h>

#include "api/api.h"

/* Defined in libmedusa-swap.so alone. */
extern enum md_status md_swap_discard_say(uint64_t address, uint64_t bytes, bool discardable, struct md_error *err)
    __attribute__((weak));

static int say(const char *function, medusa_deviceptr address, size_t bytes, bool discardable)
{
	struct md_error err = {0};
	enum md_status status = md_api_check_memory(function, address, bytes, &err);
	if (status == MD_OK && md_swap_discard_say)
		status = md_swap_discard_say(address, bytes, discardable, &err);
	return md_api_answer(status, &err);
}

MD_EXPORT int medusa_swap_discardable(medusa_deviceptr address, size_t bytes)
{
	return say("medusa_swap_discardable", address, bytes, true);
}

MD_EXPORT int medusa_swap_needed(medusa_deviceptr address, size_t bytes)
{
	return say("medusa_swap_needed", address, bytes, false);
}
