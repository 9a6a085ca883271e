/* SPDX-License-Identifier: Apache-2.0 */
/* Status names, and the writing of error messages without any allocation. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum md_status(md_error_set)(struct md_error *err, enum md_status status, const char *format, ...)
{
	char message[MD_ERROR_MESSAGE_BYTES];
	va_list args;
	if (!err)
		return status;
	/* Formatted into a copy first: arguments may point into the message that is being replaced. */
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	err->status = status;
	memcpy(err->message, message, sizeof(message));
	return status;
}

enum md_status md_error_prefix(struct md_error *err, const char *format, ...)
{
	char message[MD_ERROR_MESSAGE_BYTES];
	va_list args;
	int used;
	if (!err)
		return MD_ERR_INVALID;
	va_start(args, format);
	used = vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (used >= 0 && (size_t)used + 2 < sizeof(message)) {
		size_t room = sizeof(message) - (size_t)used - 2;
		size_t size = strnlen(err->message, room - 1);
		memcpy(message + used, ": ", 2);
		memcpy(message + used + 2, err->message, size);
		message[(size_t)used + 2 + size] = '\0';
	}
	memcpy(err->message, message, sizeof(message));
	return err->status;
}

const char *md_status_name(enum md_status status)
{
	switch (status) {
	case MD_OK:
		return "ok";
	case MD_ERR_INVALID:
		return "invalid argument";
	case MD_ERR_NO_MEMORY:
		return "out of memory";
	case MD_ERR_IO:
		return "input/output error";
	case MD_ERR_NOT_FOUND:
		return "not found";
	case MD_ERR_UNSUPPORTED:
		return "unsupported";
	case MD_ERR_TIMEOUT:
		return "timed out";
	case MD_ERR_BUSY:
		return "busy";
	case MD_ERR_OUTPUT:
		return "output error";
	case MD_ERR_TRUNCATED:
		return "truncated";
	case MD_ERR_CORRUPT:
		return "corrupt";
	case MD_ERR_VERSION:
		return "unknown version";
	case MD_ERR_TOO_LARGE:
		return "too large";
	case MD_ERR_DRIVER:
		return "driver error";
	case MD_ERR_DRIVER_MEMORY:
		return "out of device memory";
	case MD_ERR_DRIVER_MISSING:
		return "driver missing";
	case MD_ERR_MISMATCH:
		return "mismatch";
	case MD_ERR_UNPROVABLE:
		return "unprovable";
	case MD_ERR_AMBIGUOUS:
		return "ambiguous";
	}
	return "unknown status";
}
