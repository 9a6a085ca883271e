/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches device memory for words in a range of values: a kernel of ours flags the grains (blocks of 4 KiB) that have
 * one, and only the flags are copied back.
 */
#define MD_LOG_DOMAIN "driver"

#include <string.h>

#include "base/log.h"
#include "driver/device_search.h"

#define THREADS (MD_DEVICE_GRAIN / 8) /* each thread looks at 8 bytes; a block looks at a grain */
#define TRIED (2 * MD_DEVICE_GRAIN + 24)
#define OWN_TRIED (4 * MD_DEVICE_GRAIN) /* bytes of device memory for the kernel's test */

/* Parameters: data, number of 8-byte words, least value, how many values from there on, flags. */
static const char kernel_text[] = ".version 7.0\n"
				  ".target sm_70\n"
				  ".address_size 64\n"
				  ".visible .entry md_probe_search(.param .u64 data, .param .u64 words,\n"
				  "		.param .u64 lowest, .param .u64 span, .param .u64 flags)\n"
				  "{\n"
				  "	.reg .pred %p<3>;\n"
				  "	.reg .b16 %h<2>;\n"
				  "	.reg .b32 %r<4>;\n"
				  "	.reg .b64 %d<14>;\n"
				  "	mov.u32 %r1, %ctaid.x;\n"
				  "	mov.u32 %r2, %ntid.x;\n"
				  "	mov.u32 %r3, %tid.x;\n"
				  "	mul.wide.u32 %d1, %r1, %r2;\n"
				  "	cvt.u64.u32 %d2, %r3;\n"
				  "	add.u64 %d3, %d1, %d2;\n"
				  "	ld.param.u64 %d4, [words];\n"
				  "	setp.ge.u64 %p1, %d3, %d4;\n"
				  "	@%p1 bra done;\n"
				  "	ld.param.u64 %d5, [data];\n"
				  "	cvta.to.global.u64 %d5, %d5;\n"
				  "	shl.b64 %d6, %d3, 3;\n"
				  "	add.u64 %d7, %d5, %d6;\n"
				  "	ld.global.u64 %d8, [%d7];\n"
				  "	ld.param.u64 %d9, [lowest];\n"
				  "	sub.u64 %d8, %d8, %d9;\n"
				  "	ld.param.u64 %d10, [span];\n"
				  "	setp.ge.u64 %p2, %d8, %d10;\n"
				  "	@%p2 bra done;\n"
				  "	ld.param.u64 %d11, [flags];\n"
				  "	cvta.to.global.u64 %d11, %d11;\n"
				  "	cvt.u64.u32 %d12, %r1;\n"
				  "	add.u64 %d13, %d11, %d12;\n"
				  "	mov.u16 %h1, 1;\n"
				  "	st.global.u8 [%d13], %h1;\n"
				  "done:\n"
				  "	ret;\n"
				  "}\n";

bool md_device_search_can(const struct md_device_session *session, uint64_t address)
{
	return session->search && address % 8 == 0;
}

enum md_status md_device_search_launch(struct md_device_session *session, uint64_t address, uint64_t size,
				       uint64_t lowest, uint64_t highest, size_t flag, struct md_error *err)
{
	uint64_t words = size / 8, span = highest > lowest ? highest - lowest : 0, flags = session->flags + flag;
	void *params[] = {&address, &words, &lowest, &span, &flags};
	unsigned blocks = (unsigned)((words + THREADS - 1) / THREADS);
	if (!blocks)
		return MD_OK;
	return md_cuda_call(err, cuLaunchKernel, session->search, blocks, 1, 1, THREADS, 1, 1, 0, session->stream,
			    params, NULL);
}

/* ---- trying it out ---- */

#define LOWEST 0x302000000ull /* values as those of addresses */
#define HIGHEST 0x7f3456789000ull

struct
try {
	size_t at; /* in bytes; where the value is written, among values that no address has */
	uint64_t value;
	bool found;
};

static const struct try tries[] = {{0, LOWEST, true},
				   {MD_DEVICE_GRAIN - 8, HIGHEST - 1, true},
				   {MD_DEVICE_GRAIN, (LOWEST + HIGHEST) / 2, true},
				   {TRIED - 8, LOWEST + 1, true},
				   {2 * MD_DEVICE_GRAIN + 8, LOWEST - 1, false},
				   {2 * MD_DEVICE_GRAIN, HIGHEST, false},
				   {TRIED, LOWEST, false}}; /* behind the end */

static bool says(struct md_device_session *session, CUdeviceptr memory, const struct try *try)
{
	struct md_error err = {0};
	memset(session->now, 0xff, MD_DEVICE_GRAIN);
	memset(session->now + MD_DEVICE_GRAIN, 0, TRIED + 8 - MD_DEVICE_GRAIN);
	memcpy(session->now + try->at, &try->value, 8);
	if (md_device_session_write(session, memory, session->now, TRIED + 8, &err) != MD_OK ||
	    md_device_differ_begin(session, 3, &err) != MD_OK ||
	    md_device_search_launch(session, memory, TRIED, LOWEST, HIGHEST, 0, &err) != MD_OK ||
	    md_device_differ_end(session, 3, &err) != MD_OK)
		return false;
	for (size_t i = 0; i < 3; i++)
		if (session->flag_bytes[i] != (try->found && try->at / MD_DEVICE_GRAIN == i))
			return false;
	return true;
}

static bool is_right(struct md_device_session *session)
{
	CUdeviceptr memory =
	    md_device_session_reserve(session, OWN_TRIED) ? md_device_session_take(session, OWN_TRIED) : 0;
	bool right = memory != 0;
	for (size_t i = 0; right && i < sizeof(tries) / sizeof(tries[0]); i++)
		right = says(session, memory, &tries[i]);
	return right;
}

void md_device_search_load(struct md_device_session *session)
{
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	if (session->differ) /* whose flags it sets */
		result = md_device_kernel_load(&md_cuda, kernel_text, "md_probe_search", &session->search_module,
					       &session->search);
	if (!result && is_right(session))
		return;
	session->search = NULL;
	if (session->differ)
		md_debug("addresses in memory are looked for on the host: %s",
			 result ? md_cuda_error_name(result)
				: "no device memory is left for the kernel's test, or the kernel failed it");
}

void md_device_search_unload(struct md_device_session *session)
{
	if (session->search_module)
		md_cuda.cuModuleUnload(session->search_module);
}
