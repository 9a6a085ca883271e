/* SPDX-License-Identifier: Apache-2.0 */
/* Error messages of the checks of an artifact. */
#include <stdarg.h>
#include <stdio.h>

#include "format/artifact/bad.h"

enum md_status md_bad_memory(struct md_error *err, const char *section)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "section \"%s\": out of memory for its check", section);
}

enum md_status md_bad_section(struct md_error *err, const char *section, const char *format, ...)
{
	char what[MD_ERROR_MESSAGE_BYTES - 64];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	return md_error_set(err, MD_ERR_CORRUPT, "section \"%s\": %s", section, what);
}

enum md_status md_bad_node(const struct md_graph_check *c, uint32_t node, const char *format, ...)
{
	char what[256];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	return md_bad_section(c->err, "graphs", "node %u of graph %.100s/%u: %s", node, c->graph->label,
			      c->graph->batch, what);
}
