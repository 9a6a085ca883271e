/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the status page, which is a file of its own so that it can be read and changed as such. */
#include "worker/page/status_page.h"

/* With its length known at run time: a NUL follows. The path is that of the tree's root, where make runs. */
__asm__(".section .rodata\n"
	".global md_page_bytes\n"
	".hidden md_page_bytes\n"
	"md_page_bytes:\n"
	".incbin \"worker/page/status.html\"\n"
	".byte 0\n"
	".previous\n");
