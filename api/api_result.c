/* SPDX-License-Identifier: Apache-2.0 */
/* From statuses to results, and the reason of a thread's last call. */
#include <stdarg.h>
#include <stdio.h>

#include "api/api.h"

static _Thread_local char reason[MD_ERROR_MESSAGE_BYTES];

int md_api_result(enum md_status status)
{
	switch (status) {
	case MD_OK:
		return MEDUSA_OK;
	case MD_ERR_INVALID:
		return MEDUSA_ERR_INVALID;
	case MD_ERR_NO_MEMORY:
	case MD_ERR_DRIVER_MEMORY:
		return MEDUSA_ERR_NO_MEMORY;
	case MD_ERR_IO:
	case MD_ERR_NOT_FOUND:
	case MD_ERR_OUTPUT:
		return MEDUSA_ERR_NOT_FOUND;
	case MD_ERR_UNSUPPORTED:
		return MEDUSA_ERR_UNSUPPORTED;
	case MD_ERR_TIMEOUT:
	case MD_ERR_BUSY:
		return MEDUSA_ERR_TIMEOUT;
	case MD_ERR_DRIVER:
	case MD_ERR_DRIVER_MISSING:
		return MEDUSA_ERR_DRIVER;
	case MD_ERR_TRUNCATED:
	case MD_ERR_CORRUPT:
	case MD_ERR_VERSION:
	case MD_ERR_TOO_LARGE:
	case MD_ERR_MISMATCH:
	case MD_ERR_UNPROVABLE:
	case MD_ERR_AMBIGUOUS:
		return MEDUSA_ERR_MISMATCH;
	}
	return MEDUSA_ERR_MISMATCH;
}

int md_api_ok(void)
{
	reason[0] = '\0';
	return MEDUSA_OK;
}

int md_api_ok_but(const char *remark)
{
	snprintf(reason, sizeof(reason), "%s", remark);
	return MEDUSA_OK;
}

int md_api_fail(const struct md_error *err)
{
	snprintf(reason, sizeof(reason), "%s", err->message);
	return md_api_result(err->status);
}

int md_api_refuse(enum md_status status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return md_api_result(status);
}

int md_api_answer(enum md_status status, const struct md_error *err)
{
	return status == MD_OK ? md_api_ok() : md_api_fail(err);
}

const char *md_api_reason(void)
{
	return reason;
}
