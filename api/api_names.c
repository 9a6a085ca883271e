/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the values of medusa.h's enums, for logs; each library with the functions of medusa.h exports them. */
#include "api/api.h"

MD_EXPORT const char *medusa_result_name(enum medusa_result result)
{
	switch (result) {
	case MEDUSA_OK:
		return "ok";
	case MEDUSA_ERR_INVALID:
		return "invalid argument";
	case MEDUSA_ERR_NO_MEMORY:
		return "out of memory";
	case MEDUSA_ERR_NOT_FOUND:
		return "not found";
	case MEDUSA_ERR_UNSUPPORTED:
		return "unsupported";
	case MEDUSA_ERR_TIMEOUT:
		return "timeout";
	case MEDUSA_ERR_DRIVER:
		return "driver error";
	case MEDUSA_ERR_MISMATCH:
		return "mismatch";
	}
	return "unknown result";
}

MD_EXPORT const char *medusa_mode_name(enum medusa_mode mode)
{
	switch (mode) {
	case MEDUSA_MODE_NONE:
		return "none";
	case MEDUSA_MODE_CAPTURE:
		return "capture";
	case MEDUSA_MODE_RESTORE:
		return "restore";
	case MEDUSA_MODE_VERIFY:
		return "verify";
	}
	return "unknown mode";
}

MD_EXPORT const char *medusa_role_name(enum medusa_role role)
{
	switch (role) {
	case MEDUSA_BIND_CONSTANT:
		return "constant";
	case MEDUSA_BIND_STATE:
		return "state";
	case MEDUSA_BIND_INPUT:
		return "input";
	case MEDUSA_BIND_OUTPUT:
		return "output";
	}
	return "unknown role";
}
