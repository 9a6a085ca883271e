/* SPDX-License-Identifier: Apache-2.0 */
/* Removes folders of ours, even while other processes still create files in them. */
#ifndef MD_TOOLS_FOLDER_H
#define MD_TOOLS_FOLDER_H

#include <stdbool.h>

#define MD_FOLDER_GONE ".gone" /* appended to the name of a folder that is being removed */

/*
 * Removes the folder with the files in it, and with folders of files. It is renamed first (PATH.gone): a process of an engine that is still there
 * and opens its files by path makes none from then on. What PATH.gone holds is removed, too: somebody was stopped
 * before it was empty. True: both are gone. May be called by a signal handler.
 */
bool md_folder_remove(const char *path);

#endif
