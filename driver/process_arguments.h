/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments with which this process was started. */
#ifndef MD_DRIVER_PROCESS_ARGUMENTS_H
#define MD_DRIVER_PROCESS_ARGUMENTS_H

#include "base/arguments.h"

/*
 * The arguments as they were when the library was loaded, because a program may overwrite them to change its title. A
 * worker that Python's multiprocessing has started gets those of its parent: its own are numbers of descriptors. A
 * process that was forked from a template (base/environment.h) has its own in MEDUSA_ARGUMENTS. If there are more than
 * MD_ARGUMENTS_BYTES of them, one argument stands for all, with their number and hash. Secrets are replaced
 * (base/secret.h). The last argument says what the files of the program and its script hold (MD_ARGUMENTS_PROGRAM).
 * False: out of memory.
 */
bool md_process_arguments(struct md_argument_list *out);

#endif
