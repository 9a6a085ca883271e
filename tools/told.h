/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins say in the file MEDUSA_TELL that they have been loaded, and what they do or why they do nothing. */
#ifndef MD_TOOLS_TOLD_H
#define MD_TOOLS_TOLD_H

#define MD_TOLD_MOST 8
#define MD_TOLD_BYTES 512

struct md_told {
	char lines[MD_TOLD_MOST][MD_TOLD_BYTES]; /* "medusa-vllm VERSION in process 4711: what it does" */
	unsigned count;
};

/*
 * Each line of the file is PLUGIN VERSION PROCESS TEXT. Another process that says the same is not listed; nor are lines that
 * are none, or come after the first 64 KiB. None if the file cannot be read.
 */
void md_told_read(const char *path, struct md_told *out);

#endif
