/* SPDX-License-Identifier: Apache-2.0 */
/* Every value of the enums of medusa.h has a word, and nothing else has one. */
#include <criterion/criterion.h>
#include <string.h>

#include "api/api.h"

static const struct {
	int value;
	const char *name;
} results[] = {
    {MEDUSA_OK, "ok"},
    {MEDUSA_ERR_INVALID, "invalid argument"},
    {MEDUSA_ERR_NO_MEMORY, "out of memory"},
    {MEDUSA_ERR_NOT_FOUND, "not found"},
    {MEDUSA_ERR_UNSUPPORTED, "unsupported"},
    {MEDUSA_ERR_TIMEOUT, "timeout"},
    {MEDUSA_ERR_DRIVER, "driver error"},
    {MEDUSA_ERR_MISMATCH, "mismatch"},
};

static const char *expected_result(int value)
{
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i].value == value)
			return results[i].name;
	return "unknown result";
}

Test(api_names, results)
{
	for (int value = -1; value < 256; value++)
		cr_expect_str_eq(medusa_result_name((enum medusa_result)value), expected_result(value), "result %d",
				 value);
}

Test(api_names, modes_and_roles)
{
	static const char *const modes[] = {"none", "capture", "restore", "verify", "unknown mode"};
	static const char *const roles[] = {"unknown role", "constant", "state", "input", "output", "unknown role"};
	for (int value = 0; value < 5; value++)
		cr_expect_str_eq(medusa_mode_name((enum medusa_mode)value), modes[value], "mode %d", value);
	for (int value = 0; value < 6; value++)
		cr_expect_str_eq(medusa_role_name((enum medusa_role)value), roles[value], "role %d", value);
}
