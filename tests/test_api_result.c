/* SPDX-License-Identifier: Apache-2.0 */
/* From statuses to the results of medusa.h, and the reason that goes with them. */
#include <criterion/criterion.h>
#include <string.h>

#include "api/api.h"

static const struct {
	enum md_status status;
	int result;
} results[] = {
    {MD_OK, MEDUSA_OK},
    {MD_ERR_INVALID, MEDUSA_ERR_INVALID},
    {MD_ERR_NO_MEMORY, MEDUSA_ERR_NO_MEMORY},
    {MD_ERR_DRIVER_MEMORY, MEDUSA_ERR_NO_MEMORY},
    {MD_ERR_IO, MEDUSA_ERR_NOT_FOUND},
    {MD_ERR_NOT_FOUND, MEDUSA_ERR_NOT_FOUND},
    {MD_ERR_OUTPUT, MEDUSA_ERR_NOT_FOUND},
    {MD_ERR_UNSUPPORTED, MEDUSA_ERR_UNSUPPORTED},
    {MD_ERR_TIMEOUT, MEDUSA_ERR_TIMEOUT},
    {MD_ERR_BUSY, MEDUSA_ERR_TIMEOUT},
    {MD_ERR_DRIVER, MEDUSA_ERR_DRIVER},
    {MD_ERR_DRIVER_MISSING, MEDUSA_ERR_DRIVER},
    {MD_ERR_TRUNCATED, MEDUSA_ERR_MISMATCH},
    {MD_ERR_CORRUPT, MEDUSA_ERR_MISMATCH},
    {MD_ERR_VERSION, MEDUSA_ERR_MISMATCH},
    {MD_ERR_TOO_LARGE, MEDUSA_ERR_MISMATCH},
    {MD_ERR_MISMATCH, MEDUSA_ERR_MISMATCH},
    {MD_ERR_UNPROVABLE, MEDUSA_ERR_MISMATCH},
    {MD_ERR_AMBIGUOUS, MEDUSA_ERR_MISMATCH},
};

Test(api_result, every_status_has_a_result)
{
	size_t named = 0;
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		cr_expect_eq(md_api_result(results[i].status), results[i].result, "status %d", (int)results[i].status);
	for (int status = 0; status < 256; status++)
		named += strcmp(md_status_name((enum md_status)status), md_status_name((enum md_status)255)) != 0;
	cr_expect_eq(named, sizeof(results) / sizeof(results[0]), "%zu statuses have a name", named);
}

Test(api_result, the_reason_is_that_of_the_last_call)
{
	struct md_error err = {0};
	cr_expect_str_eq(md_api_reason(), "");
	md_error_set(&err, MD_ERR_TIMEOUT, "still at work");
	cr_expect_eq(md_api_answer(MD_ERR_TIMEOUT, &err), MEDUSA_ERR_TIMEOUT);
	cr_expect_str_eq(md_api_reason(), "still at work");
	cr_expect_eq(md_api_ok_but("measured live"), MEDUSA_OK);
	cr_expect_str_eq(md_api_reason(), "measured live");
	cr_expect_eq(md_api_refuse(MD_ERR_MISMATCH, "graph %d", 3), MEDUSA_ERR_MISMATCH);
	cr_expect_str_eq(md_api_reason(), "graph 3");
	cr_expect_eq(md_api_answer(MD_OK, &err), MEDUSA_OK);
	cr_expect_str_eq(md_api_reason(), "");
}
