/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix library's kernel images, in its own read-only data; the CUDA one is empty where there is no CUDA compiler. */

	.macro image name
	.balign 64
	.globl gemm_\name\()_begin, gemm_\name\()_end
	.hidden gemm_\name\()_begin, gemm_\name\()_end
	.type gemm_\name\()_begin, %object
gemm_\name\()_begin:
	.endm

	.section .rodata, "a", %progbits

	image host_image
	.incbin GEMM_HOST_IMAGE
gemm_host_image_end:

	image fatbin
#ifdef GEMM_FATBIN
	.incbin GEMM_FATBIN
#endif
gemm_fatbin_end:
	/* so that the end lies inside the section even when the image is empty */
	.byte 0

	.section .note.GNU-stack, "", %progbits
