/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments with which the process of these libraries was started. */
#ifndef MD_DRIVER_PROCESS_ARGUMENTS_H
#define MD_DRIVER_PROCESS_ARGUMENTS_H

#include "base/arguments.h"

/*
 * The arguments as they were when the library was loaded: a program may overwrite them to change its title. A worker
 * that Python's multiprocessing has started has those of its parent: its own are numbers of descriptors. More than
 * MD_ARGUMENTS_BYTES are one argument that says how many they are, and their hash. The last one says what the files of
 * the program and its script hold (MD_ARGUMENTS_PROGRAM). False: out of memory.
 */
bool md_process_arguments(struct md_argument_list *out);

#endif
