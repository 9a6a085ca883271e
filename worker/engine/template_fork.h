/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a template for an engine: one line of JSON and three descriptors there, the new process's ID back. */
#ifndef MD_WORKER_ENGINE_TEMPLATE_FORK_H
#define MD_WORKER_ENGINE_TEMPLATE_FORK_H

#include "worker/engine/template.h"

/*
 * The question is {"version": 1, "argv": [TEXT, ...], "env": {NAME: VALUE, ...}, "cwd": PATH}, and with its first byte come
 * descriptors for standard input, output and error (SCM_RIGHTS). The answer is {"pid": NUMBER} or {"refused": TEXT}. The
 * process leads a process group of its own, and waits for "go"; it ends if the connection closes before. Its parent is
 * gone, so that it is the child of whoever collects orphans (PR_SET_CHILD_SUBREAPER). medusa-template(7)
 */
#define MD_ENGINE_TEMPLATE_VERSION 1

struct md_template_fork;

struct md_template_fork_events {
	/* The process waits: what follows is md_template_fork_go or _cancel. */
	void (*forked)(void *context, pid_t pid);
	void (*failed)(void *context, const char *why); /* the fork is no longer there */
};

/* One of the events follows, from the loop. NULL: `why` says why not, as a sentence without its end. */
struct md_template_fork *md_template_fork_begin(struct event_base *base, struct md_engine_template *template,
						const struct md_engine_command *command,
						const struct md_template_fork_events *events, void *context, char *why,
						size_t size);
/* Both end the fork. False: the process has not been told, and ends. */
bool md_template_fork_go(struct md_template_fork *fork);
void md_template_fork_cancel(struct md_template_fork *fork); /* the process ends; NULL is fine */

#endif
