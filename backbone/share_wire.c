/* SPDX-License-Identifier: Apache-2.0 */
#include "backbone/share_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum md_status md_backbone_socket(char path[PATH_MAX], struct md_error *err)
{
	const char *set = secure_getenv("MEDUSA_BACKBONE"), *runtime = secure_getenv("XDG_RUNTIME_DIR");
	int size;
	if (set && *set)
		size = snprintf(path, PATH_MAX, "%s", set);
	else if (runtime && *runtime == '/')
		size = snprintf(path, PATH_MAX, "%s/medusa/backbone.sock", runtime);
	else
		size = snprintf(path, PATH_MAX, "/tmp/medusa-%u/medusa/backbone.sock", geteuid());
	if (size < 0 || size >= PATH_MAX)
		return md_error_set(err, MD_ERR_INVALID, "MEDUSA_BACKBONE or XDG_RUNTIME_DIR has too many bytes");
	return MD_OK;
}

enum md_status md_backbone_check_name(const char *name, struct md_error *err)
{
	size_t size = strlen(name);
	if (size && size <= MD_BACKBONE_NAME_MOST &&
	    !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:+")])
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_INVALID,
	    "\"%.80s\" is not a name for a backbone: use at most %u letters, digits, \".\", \"_\", \"-\", "
	    "\"/\", \":\" and \"+\"",
	    name, MD_BACKBONE_NAME_MOST);
}
