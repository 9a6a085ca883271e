/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the lines of a stream of events, and knows after which of them no event is unfinished. */
#include "worker/core/event_border.h"

static void take_part(struct md_event_border *border, const struct md_event_part *part)
{
	if (part->begins && !part->size) { /* a blank line: it alone ends here, and an event with it */
		border->pending = false;
		return;
	}
	if (part->begins)
		border->comment = *part->bytes == ':';
	border->pending = border->pending || !border->comment;
}

size_t md_event_border_find(struct md_event_border *border, const char *bytes, size_t size)
{
	const char *at = bytes, *end = bytes + size, *last = bytes;
	struct md_event_part part;
	/* a LF that belongs to the CR of a border stands before it */
	last += size && border->lines.cr && !border->pending && *bytes == '\n';
	while (md_event_lines_next(&border->lines, &at, end, &part)) {
		take_part(border, &part);
		if (part.ends && !border->pending)
			last = at;
	}
	return (size_t)(last - bytes);
}
