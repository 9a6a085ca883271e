/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel that hashes device memory: its text, its launch, and the sample on which it must agree with the host. */
#define MD_LOG_DOMAIN "driver"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "driver/device_hash.h"
#include "driver/device_session.h"

#define THREADS 256
#define BLOCKS 4096u /* at most; a block takes one piece after another */

/*
 * Parameters: pieces, count. A block takes a piece, its threads every 256th lane, four at a time so that loads overlap;
 * a warp adds up, and its first thread adds to the sums of the range. An unaligned piece, and a partial last lane, are
 * read byte by byte. It is PTX, which the driver translates for any device. The macros take names of registers as
 * strings; "w" is a scratch register.
 */
/* clang-format off */ /* one instruction a line */
#define SHIFT_XOR(z, w) \
	"	shr.u64 " w ", " z ", 32;\n" \
	"	xor.b64 " z ", " z ", " w ";\n"
#define MIX(z, w) \
	SHIFT_XOR(z, w) \
	"	mul.lo.u64 " z ", " z ", %odd;\n" \
	SHIFT_XOR(z, w) \
	"	mul.lo.u64 " z ", " z ", %odd;\n" \
	SHIFT_XOR(z, w)
/* a, b: the words of a lane; both are overwritten */
#define LANE(a, b, key, w) \
	"	add.u64 " a ", " a ", " key ";\n" \
	MIX(a, w) \
	"	add.u64 " b ", " b ", " key ";\n" \
	"	xor.b64 " b ", " b ", " a ";\n" \
	MIX(b, w) \
	"	add.u64 " a ", " a ", " b ";\n" \
	MIX(a, w) \
	"	add.u64 %one, %one, " a ";\n" \
	"	add.u64 %two, %two, " b ";\n"
/* Each thread of a warp adds the sum of the thread that is `away` lanes away. */
#define FOLD(sum, away) \
	"	mov.b64 {%r8, %r9}, " sum ";\n" \
	"	shfl.sync.bfly.b32 %r10, %r8, " away ", 31, 0xffffffff;\n" \
	"	shfl.sync.bfly.b32 %r11, %r9, " away ", 31, 0xffffffff;\n" \
	"	mov.b64 %d30, {%r10, %r11};\n" \
	"	add.u64 " sum ", " sum ", %d30;\n"
#define FOLD_BOTH(away) FOLD("%one", away) FOLD("%two", away)
#define NEXT_LANE \
	"	add.u64 %key, %key, %d5;\n" \
	"	add.u64 %from, %from, 4096;\n" \
	"	add.u64 %i, %i, 256;\n"

static const char kernel_text[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry md_probe_hash(.param .u64 pieces, .param .u64 count)\n"
	"{\n"
	"	.reg .pred %p<8>;\n"
	"	.reg .b16 %h<2>;\n"
	"	.reg .b32 %r<16>;\n"
	"	.reg .b64 %d<40>;\n"
	"	.reg .b64 %one, %two, %odd, %golden, %piece, %count;\n"
	"	.reg .b64 %at, %bytes, %lane, %sums, %whole, %lanes, %i, %key, %from;\n"
	"	mov.u64 %odd, 0xd6e8feb86659fd93;\n"
	"	mov.u64 %golden, 0x9e3779b97f4a7c15;\n"
	"	mov.u32 %r1, %ctaid.x;\n"
	"	mov.u32 %r2, %nctaid.x;\n"
	"	mov.u32 %r3, %tid.x;\n"
	"	and.b32 %r4, %r3, 31;\n"
	"	cvt.u64.u32 %piece, %r1;\n"
	"	ld.param.u64 %count, [count];\n"
	/* how much greater the keys of the lanes 256, 512, 768 and 1024 further on are */
	"	shl.b64 %d5, %golden, 8;\n"
	"	shl.b64 %d6, %golden, 9;\n"
	"	add.u64 %d7, %d5, %d6;\n"
	"	shl.b64 %d8, %golden, 10;\n"
	"next_piece:\n"
	"	setp.ge.u64 %p1, %piece, %count;\n"
	"	@%p1 bra done;\n"
	"	ld.param.u64 %d1, [pieces];\n"
	"	cvta.to.global.u64 %d1, %d1;\n"
	"	shl.b64 %d2, %piece, 5;\n"
	"	add.u64 %d1, %d1, %d2;\n"
	"	ld.global.v2.u64 {%at, %bytes}, [%d1];\n"
	"	ld.global.v2.u64 {%lane, %sums}, [%d1 + 16];\n"
	"	cvta.to.global.u64 %at, %at;\n"
	"	cvta.to.global.u64 %sums, %sums;\n"
	"	mov.u64 %one, 0;\n"
	"	mov.u64 %two, 0;\n"
	"	add.u64 %lanes, %bytes, 15;\n"
	"	shr.u64 %lanes, %lanes, 4;\n"
	"	shr.u64 %whole, %bytes, 4;\n"
	"	and.b64 %d3, %at, 15;\n"
	"	setp.ne.u64 %p2, %d3, 0;\n"
	"	selp.b64 %whole, 0, %whole, %p2;\n"
	"	cvt.u64.u32 %i, %r3;\n"
	"	shl.b64 %d4, %i, 4;\n"
	"	add.u64 %from, %at, %d4;\n"
	"	add.u64 %key, %lane, %i;\n"
	"	add.u64 %key, %key, 1;\n"
	"	mul.lo.u64 %key, %key, %golden;\n"
	"four_lanes:\n"
	"	add.u64 %d9, %i, 768;\n"
	"	setp.ge.u64 %p3, %d9, %whole;\n"
	"	@%p3 bra one_lane;\n"
	"	ld.global.nc.v2.u64 {%d10, %d11}, [%from];\n"
	"	ld.global.nc.v2.u64 {%d12, %d13}, [%from + 4096];\n"
	"	ld.global.nc.v2.u64 {%d14, %d15}, [%from + 8192];\n"
	"	ld.global.nc.v2.u64 {%d16, %d17}, [%from + 12288];\n"
	"	add.u64 %d18, %key, %d5;\n"
	"	add.u64 %d19, %key, %d6;\n"
	"	add.u64 %d20, %key, %d7;\n"
	LANE("%d10", "%d11", "%key", "%d21")
	LANE("%d12", "%d13", "%d18", "%d22")
	LANE("%d14", "%d15", "%d19", "%d23")
	LANE("%d16", "%d17", "%d20", "%d24")
	"	add.u64 %key, %key, %d8;\n"
	"	add.u64 %from, %from, 16384;\n"
	"	add.u64 %i, %i, 1024;\n"
	"	bra four_lanes;\n"
	"one_lane:\n"
	"	setp.ge.u64 %p4, %i, %whole;\n"
	"	@%p4 bra broken_lane;\n"
	"	ld.global.nc.v2.u64 {%d10, %d11}, [%from];\n"
	LANE("%d10", "%d11", "%key", "%d21")
	NEXT_LANE
	"	bra one_lane;\n"
	"broken_lane:\n"
	"	setp.ge.u64 %p5, %i, %lanes;\n"
	"	@%p5 bra add_up;\n"
	"	mov.u64 %d10, 0;\n"
	"	mov.u64 %d11, 0;\n"
	"	shl.b64 %d25, %i, 4;\n"
	"	sub.u64 %d25, %bytes, %d25;\n"
	"	min.u64 %d25, %d25, 16;\n"
	/* the last byte first */
	"next_byte:\n"
	"	sub.u64 %d25, %d25, 1;\n"
	"	add.u64 %d26, %from, %d25;\n"
	"	ld.global.u8 %h1, [%d26];\n"
	"	cvt.u64.u16 %d27, %h1;\n"
	"	shr.u64 %d28, %d10, 56;\n"
	"	shl.b64 %d11, %d11, 8;\n"
	"	or.b64 %d11, %d11, %d28;\n"
	"	shl.b64 %d10, %d10, 8;\n"
	"	or.b64 %d10, %d10, %d27;\n"
	"	setp.ne.u64 %p6, %d25, 0;\n"
	"	@%p6 bra next_byte;\n"
	LANE("%d10", "%d11", "%key", "%d21")
	NEXT_LANE
	"	bra broken_lane;\n"
	"add_up:\n"
	"	bar.warp.sync 0xffffffff;\n"
	FOLD_BOTH("16")
	FOLD_BOTH("8")
	FOLD_BOTH("4")
	FOLD_BOTH("2")
	FOLD_BOTH("1")
	"	setp.ne.u32 %p7, %r4, 0;\n"
	"	@%p7 bra added;\n"
	"	red.global.add.u64 [%sums], %one;\n"
	"	red.global.add.u64 [%sums + 8], %two;\n"
	"added:\n"
	"	cvt.u64.u32 %d29, %r2;\n"
	"	add.u64 %piece, %piece, %d29;\n"
	"	bra next_piece;\n"
	"done:\n"
	"	ret;\n"
	"}\n";
/* clang-format on */

/* ---- launching it ---- */

#define SUMS_AT (MD_HASH_PIECES * sizeof(struct md_hash_piece))

const struct md_cuda *md_hash_driver(const struct md_device_hasher *hasher)
{
	return hasher->driver ? hasher->driver : &md_cuda;
}

bool md_hash_room_take(const struct md_device_hasher *hasher, bool on_device, struct md_hash_room *room)
{
	const struct md_cuda *driver = md_hash_driver(hasher);
	void *locked = NULL;
	*room = (struct md_hash_room){.locked = driver->cuMemHostAlloc(&locked, MD_HASH_STAGING, 0) == CUDA_SUCCESS};
	room->staging = room->locked ? locked : malloc(MD_HASH_STAGING);
	if (on_device && driver->cuMemAlloc_v2(&room->room, SUMS_AT + MD_HASH_SUMS * sizeof(struct md_hash_sums)))
		room->room = 0;
	return room->staging != NULL;
}

void md_hash_room_give(const struct md_device_hasher *hasher, struct md_hash_room *room)
{
	if (room->room)
		md_hash_driver(hasher)->cuMemFree_v2(room->room);
	if (room->locked)
		md_hash_driver(hasher)->cuMemFreeHost(room->staging);
	else
		free(room->staging);
	*room = (struct md_hash_room){0};
}

/* Pieces come with indices of sums; the kernel gets addresses. */
static void give_addresses(const struct md_hash_room *room, const struct md_hash_piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct md_hash_piece piece = pieces[i];
		piece.sums = room->room + SUMS_AT + piece.sums * sizeof(struct md_hash_sums);
		memcpy(room->staging + i * sizeof(piece), &piece, sizeof(piece));
	}
}

static enum md_status launch(const struct md_device_hasher *hasher, CUstream stream, const struct md_hash_room *room,
			     size_t count, size_t sum_count, struct md_error *err)
{
	const struct md_cuda *driver = md_hash_driver(hasher);
	uint64_t table = room->room, pieces = count;
	void *params[] = {&table, &pieces};
	unsigned blocks = count < BLOCKS ? (unsigned)count : BLOCKS;
	size_t sums = sum_count * sizeof(struct md_hash_sums);
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemcpyHtoDAsync_v2, room->room, room->staging,
				   count * sizeof(struct md_hash_piece), stream));
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemsetD8Async, room->room + SUMS_AT, 0, sums, stream));
	MD_FORWARD(md_cuda_call_in(driver, err, cuLaunchKernel, hasher->function, blocks, 1, 1, THREADS, 1, 1, 0,
				   stream, params, NULL));
	MD_FORWARD(
	    md_cuda_call_in(driver, err, cuMemcpyDtoHAsync_v2, room->staging, room->room + SUMS_AT, sums, stream));
	return md_cuda_call_in(driver, err, cuStreamSynchronize, stream);
}

enum md_status md_hash_kernel_run(const struct md_device_hasher *hasher, CUstream stream,
				  const struct md_hash_room *room, const struct md_hash_piece *pieces, size_t count,
				  struct md_hash_sums *sums, size_t sum_count, struct md_error *err)
{
	give_addresses(room, pieces, count);
	MD_FORWARD(launch(hasher, stream, room, count, sum_count, err));
	for (size_t i = 0; i < sum_count; i++) {
		struct md_hash_sums more;
		memcpy(&more, room->staging + i * sizeof(more), sizeof(more));
		sums[i].one += more.one;
		sums[i].two += more.two;
	}
	return MD_OK;
}

/* ---- trying it out ---- */

/* A piece with a partial lane, an unaligned one, and one that continues the first. */
#define TRIED (8 * THREADS * 16 + 2 * 4096)
static const struct {
	uint64_t at, size, lane;
	size_t sum;
} tries[] = {{0, 5 * THREADS * 16 + 3 * 16 + 5, 0, 0}, {4096 + 7, 1000, 0, 1}, {16, 6 * THREADS * 16, 1u << 20, 0}};
#define TRIES (sizeof(tries) / sizeof(tries[0]))

static bool agrees(const struct md_device_hasher *hasher, CUstream stream, const struct md_hash_room *room,
		   CUdeviceptr sample)
{
	struct md_hash_piece pieces[TRIES];
	struct md_hash_sums here[2] = {{0, 0}}, there[2] = {{0, 0}};
	struct md_error err = {0};
	const struct md_cuda *driver = md_hash_driver(hasher);
	for (uint32_t i = 0; i < TRIED; i++)
		room->staging[i] = (uint8_t)((i * 2654435761u) >> 13);
	for (size_t i = 0; i < TRIES; i++) {
		pieces[i] = (struct md_hash_piece){sample + tries[i].at, tries[i].size, tries[i].lane, tries[i].sum};
		md_hash_add(&here[tries[i].sum], tries[i].lane, room->staging + tries[i].at, tries[i].size);
	}
	return md_cuda_call_in(driver, &err, cuMemcpyHtoDAsync_v2, sample, room->staging, TRIED, stream) == MD_OK &&
	       md_cuda_call_in(driver, &err, cuStreamSynchronize, stream) == MD_OK &&
	       md_hash_kernel_run(hasher, stream, room, pieces, TRIES, there, 2, &err) == MD_OK &&
	       !memcmp(here, there, sizeof(here));
}

static bool is_right(const struct md_device_hasher *hasher, CUstream stream, const struct md_hash_room *room)
{
	const struct md_cuda *driver = md_hash_driver(hasher);
	CUdeviceptr sample = 0;
	bool right = false;
	if (room->staging && room->room && driver->cuMemAlloc_v2(&sample, TRIED) == CUDA_SUCCESS)
		right = agrees(hasher, stream, room, sample);
	if (sample)
		driver->cuMemFree_v2(sample);
	return right;
}

/* Leaves the buffers of the test to the hasher. */
static void open_kernel(struct md_device_hasher *hasher, CUstream stream)
{
	CUresult result = md_device_kernel_load(md_hash_driver(hasher), kernel_text, "md_probe_hash", &hasher->module,
						&hasher->function);
	md_hash_room_take(hasher, !result, &hasher->room);
	if (!result && is_right(hasher, stream, &hasher->room))
		return;
	md_debug("memory is hashed on the host: %s",
		 result ? md_cuda_error_name(result)
			: "no device memory is left for the kernel, or the kernel failed its own test");
	hasher->function = NULL;
}

void md_device_hasher_open(struct md_device_hasher *hasher, CUstream stream)
{
	*hasher = (struct md_device_hasher){0};
	open_kernel(hasher, stream);
	md_hash_room_give(hasher, &hasher->room);
}

void md_device_hasher_open_mapped(struct md_device_hasher *hasher, const struct md_cuda *driver, CUstream stream)
{
	*hasher = (struct md_device_hasher){.driver = driver, .mapped = true};
	open_kernel(hasher, stream);
}

void md_device_hasher_close(struct md_device_hasher *hasher)
{
	md_hash_room_give(hasher, &hasher->room);
	if (hasher->module)
		md_hash_driver(hasher)->cuModuleUnload(hasher->module);
	*hasher = (struct md_device_hasher){0};
}
