/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from the environment, as it was when the process started: an engine may clear it or go to another folder. */
#ifndef MD_BASE_ENVIRONMENT_H
#define MD_BASE_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* Priorities of constructors: the environment is read first. */
#define MD_LOADED_FIRST 110
#define MD_LOADED_SETTINGS 120

/*
 * The value that a variable has now or, when it has none, had when this library was loaded: engines clear their
 * environment at times, or write over its memory to change their title. NULL when there is none, and always in a
 * program that runs with other rights than its user's (set-user-ID). Only names that begin with MEDUSA_ are remembered.
 */
const char *md_environment_get(const char *name);
/*
 * The path that a variable holds, made absolute from the folder that the process was started in. False when it is not
 * set, empty, or longer than the room; *out is "" then.
 */
bool md_environment_path(const char *name, char *out, size_t room);

/*
 * True in a process that was forked from a template (MEDUSA_TEMPLATE holds the template's process ID). The template had
 * loaded this library, and the process has become another program since. So settings, folder, standard error and
 * arguments from the start of the template do not count; those in the process's own environment do.
 */
bool md_environment_is_fork(void);

#endif
