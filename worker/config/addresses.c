/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of engines and peers. */
#include <string.h>

#include "worker/config/parts.h"

enum md_status md_config_check_url(const struct md_config_build *build, const struct md_tree *node, const char *url)
{
	size_t scheme = !strncasecmp(url, "http://", 7) ? 7 : !strncasecmp(url, "https://", 8) ? 8 : 0;
	const char *host = url + scheme;
	size_t length = strcspn(host, "/?#");
	if (!scheme || !length || *host == ':' || strpbrk(url, " \t\r\n\"<>"))
		return md_tree_refuse(node, build->err, "a URL is wanted, such as http://localhost:8080");
	return MD_OK;
}
