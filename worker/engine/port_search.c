/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/port_search.h"

#include <stdio.h>
#include <stdlib.h>

#include "worker/engine/port_owner.h"

#define MARK_BYTES 64u

struct question {
	uint64_t inode;
	pid_t group, owner;
	char mark[MARK_BYTES];
};

static void search(void *state)
{
	struct question *question = state;
	question->owner = md_port_foreign_owner(question->inode, question->group, question->mark);
}

pid_t md_port_search_owner(const void *state)
{
	return ((const struct question *)state)->owner;
}

struct md_search_thread *md_port_search_begin(struct event_base *base, uint64_t inode, pid_t group, const char *mark,
					      void (*found)(void *context, const void *state), void *context)
{
	struct question *question = malloc(sizeof(*question));
	if (!question)
		return NULL;
	*question = (struct question){.inode = inode, .group = group};
	snprintf(question->mark, sizeof(question->mark), "%s", mark);
	return md_search_thread_begin(base, search, question, found, context);
}
