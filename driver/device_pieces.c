/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies, compares and fills many pieces of device memory in one launch: a kernel of ours reads a table of the pieces. If
 * the kernel cannot be loaded, pieces are copied one by one.
 */
#define MD_LOG_DOMAIN "driver"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "driver/device_pieces.h"

#define THREADS 256
#define BLOCKS 4096u          /* at most; a block takes one piece after another */
#define PIECE (256u << 10)    /* bytes that a block takes at a time; a multiple of the grain */
#define ALONE (16ull << 20)   /* bytes from which on a copy by the driver costs no more */
#define TABLE 8192u           /* pieces */
#define SHARE 16u             /* of the free memory at most this part; the rest is for copies */
#define OWN_TRIED (64u << 10) /* bytes of device memory for the kernel's test */
#define STAGE (1u << 20)      /* bytes that are brought together */

struct md_device_piece {   /* layout that the kernel reads */
	uint64_t to, from; /* from 0: `what` is written to each 8 bytes */
	uint64_t bytes;
	uint64_t what; /* 0: a copy; else the flag of the first grain: the pieces are compared */
};

/*
 * Parameters: pieces, count. A block takes a piece, its threads every 256th lane of 16 bytes. Unaligned pieces and the
 * last bytes are taken byte by byte. "tail" is the index of a byte, "lane" that of 16 bytes.
 */
/* clang-format off */ /* one instruction a line */
#define NEXT_LANE(begin) \
	"	add.u64 %lane, %lane, 256;\n" \
	"	add.u64 %one, %one, 4096;\n" \
	"	add.u64 %two, %two, 4096;\n" \
	"	bra " begin ";\n"
#define FIRST_BYTE \
	"	shl.b64 %tail, %whole, 4;\n" \
	"	add.u64 %tail, %tail, %thread;\n"
#define NEXT_BYTE(begin) \
	"	add.u64 %tail, %tail, 256;\n" \
	"	bra " begin ";\n"
#define SET_FLAG(index, shift) \
	"	shr.u64 %d8, " index ", " shift ";\n" \
	"	add.u64 %d8, %d8, %what;\n" \
	"	st.global.u8 [%d8], %h3;\n"

static const char kernel_text[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry md_probe_pieces(.param .u64 pieces, .param .u64 count)\n"
	"{\n"
	"	.reg .pred %p<12>;\n"
	"	.reg .b16 %h<4>;\n"
	"	.reg .b32 %r<4>;\n"
	"	.reg .b64 %d<16>;\n"
	"	.reg .b64 %piece, %pieces, %count, %blocks, %thread, %to, %from, %bytes, %what;\n"
	"	.reg .b64 %whole, %lane, %tail, %one, %two;\n"
	"	mov.u32 %r1, %ctaid.x;\n"
	"	mov.u32 %r2, %nctaid.x;\n"
	"	mov.u32 %r3, %tid.x;\n"
	"	cvt.u64.u32 %piece, %r1;\n"
	"	cvt.u64.u32 %blocks, %r2;\n"
	"	cvt.u64.u32 %thread, %r3;\n"
	"	ld.param.u64 %pieces, [pieces];\n"
	"	ld.param.u64 %count, [count];\n"
	"	cvta.to.global.u64 %pieces, %pieces;\n"
	"	mov.u16 %h3, 1;\n"
	"next_piece:\n"
	"	setp.ge.u64 %p1, %piece, %count;\n"
	"	@%p1 bra done;\n"
	"	shl.b64 %d1, %piece, 5;\n"
	"	add.u64 %d1, %d1, %pieces;\n"
	"	add.u64 %piece, %piece, %blocks;\n"
	"	ld.global.v2.u64 {%to, %from}, [%d1];\n"
	"	ld.global.v2.u64 {%bytes, %what}, [%d1 + 16];\n"
	"	or.b64 %d2, %to, %from;\n"
	"	and.b64 %d2, %d2, 15;\n"
	"	setp.ne.u64 %p2, %d2, 0;\n"
	"	shr.u64 %whole, %bytes, 4;\n"
	"	selp.b64 %whole, 0, %whole, %p2;\n"
	"	setp.eq.u64 %p3, %from, 0;\n"
	"	setp.eq.u64 %p4, %what, 0;\n"
	"	cvta.to.global.u64 %to, %to;\n"
	"	mov.u64 %lane, %thread;\n"
	"	shl.b64 %d3, %lane, 4;\n"
	"	add.u64 %one, %to, %d3;\n"
	"	mov.u64 %two, %one;\n"
	"	@%p3 bra fill_lane;\n"
	"	cvta.to.global.u64 %from, %from;\n"
	"	add.u64 %two, %from, %d3;\n"
	"	@%p4 bra copy_lane;\n"
	"	cvta.to.global.u64 %what, %what;\n"
	"differ_lane:\n"
	"	setp.ge.u64 %p5, %lane, %whole;\n"
	"	@%p5 bra differ_bytes;\n"
	"	ld.global.v2.u64 {%d4, %d5}, [%one];\n"
	"	ld.global.v2.u64 {%d6, %d7}, [%two];\n"
	"	xor.b64 %d4, %d4, %d6;\n"
	"	xor.b64 %d5, %d5, %d7;\n"
	"	or.b64 %d4, %d4, %d5;\n"
	"	setp.eq.u64 %p6, %d4, 0;\n"
	"	@%p6 bra equal_lane;\n"
	SET_FLAG("%lane", "8")
	"equal_lane:\n"
	NEXT_LANE("differ_lane")
	"differ_bytes:\n"
	FIRST_BYTE
	"differ_byte:\n"
	"	setp.ge.u64 %p7, %tail, %bytes;\n"
	"	@%p7 bra next_piece;\n"
	"	add.u64 %d9, %to, %tail;\n"
	"	add.u64 %d10, %from, %tail;\n"
	"	ld.global.u8 %h1, [%d9];\n"
	"	ld.global.u8 %h2, [%d10];\n"
	"	setp.eq.u16 %p8, %h1, %h2;\n"
	"	@%p8 bra equal_byte;\n"
	SET_FLAG("%tail", "12")
	"equal_byte:\n"
	NEXT_BYTE("differ_byte")
	"copy_lane:\n"
	"	setp.ge.u64 %p5, %lane, %whole;\n"
	"	@%p5 bra copy_bytes;\n"
	"	ld.global.v2.u64 {%d4, %d5}, [%two];\n"
	"	st.global.v2.u64 [%one], {%d4, %d5};\n"
	NEXT_LANE("copy_lane")
	"copy_bytes:\n"
	FIRST_BYTE
	"copy_byte:\n"
	"	setp.ge.u64 %p7, %tail, %bytes;\n"
	"	@%p7 bra next_piece;\n"
	"	add.u64 %d9, %to, %tail;\n"
	"	add.u64 %d10, %from, %tail;\n"
	"	ld.global.u8 %h1, [%d10];\n"
	"	st.global.u8 [%d9], %h1;\n"
	NEXT_BYTE("copy_byte")
	"fill_lane:\n"
	"	setp.ge.u64 %p5, %lane, %whole;\n"
	"	@%p5 bra fill_bytes;\n"
	"	st.global.v2.u64 [%one], {%what, %what};\n"
	NEXT_LANE("fill_lane")
	"fill_bytes:\n"
	FIRST_BYTE
	"fill_byte:\n"
	"	setp.ge.u64 %p7, %tail, %bytes;\n"
	"	@%p7 bra next_piece;\n"
	"	add.u64 %d9, %to, %tail;\n"
	"	cvt.u32.u64 %r1, %tail;\n"
	"	and.b32 %r1, %r1, 7;\n"
	"	shl.b32 %r1, %r1, 3;\n"
	"	shr.u64 %d10, %what, %r1;\n"
	"	cvt.u16.u64 %h1, %d10;\n"
	"	st.global.u8 [%d9], %h1;\n"
	NEXT_BYTE("fill_byte")
	"done:\n"
	"	ret;\n"
	"}\n";
/* clang-format on */

/* ---- the batch ---- */

/* Launches that have not run yet read the table, so it is written anew only after a wait. */
static enum md_status launch(struct md_device_session *session, struct md_error *err)
{
	size_t first = session->pieces_launched, count = session->piece_count - first;
	uint64_t table = session->table + first * sizeof(struct md_device_piece), pieces = count;
	void *params[] = {&table, &pieces};
	session->pieces_launched = session->piece_count;
	if (!count)
		return MD_OK;
	MD_FORWARD(md_cuda_call(err, cuMemcpyHtoDAsync_v2, table, session->table_bytes + first,
				count * sizeof(struct md_device_piece), session->stream));
	return md_cuda_call(err, cuLaunchKernel, session->pieces, count < BLOCKS ? (unsigned)count : BLOCKS, 1, 1,
			    THREADS, 1, 1, 0, session->stream, params, NULL);
}

void md_device_batch_begin(struct md_device_session *session)
{
	session->piece_count = session->pieces_launched;
	session->staged = 0;
}

enum md_status md_device_batch_launch(struct md_device_session *session, struct md_error *err)
{
	return session->pieces ? launch(session, err) : MD_OK;
}

enum md_status md_device_batch_wait(struct md_device_session *session, struct md_error *err)
{
	MD_FORWARD(md_device_batch_launch(session, err));
	return md_device_session_wait(session, err);
}

static enum md_status add(struct md_device_session *session, struct md_device_piece range, struct md_error *err)
{
	for (uint64_t at = 0; at < range.bytes; at += PIECE) {
		struct md_device_piece piece = range;
		if (session->piece_count == TABLE)
			MD_FORWARD(md_device_batch_wait(session, err));
		piece.to += at;
		piece.from += range.from ? at : 0;
		piece.bytes = range.bytes - at < PIECE ? range.bytes - at : PIECE;
		piece.what += range.from && range.what ? at / MD_DEVICE_GRAIN : 0;
		session->table_bytes[session->piece_count++] = piece;
	}
	return MD_OK;
}

enum md_status md_device_batch_copy(struct md_device_session *session, uint64_t to, uint64_t from, uint64_t size,
				    struct md_error *err)
{
	if (!session->pieces || size >= ALONE)
		return md_cuda_call(err, cuMemcpyDtoDAsync_v2, to, from, size, session->stream);
	return add(session, (struct md_device_piece){to, from, size, 0}, err);
}

enum md_status md_device_batch_differ(struct md_device_session *session, uint64_t one, uint64_t two, uint64_t size,
				      size_t flag, struct md_error *err)
{
	if (!session->pieces || (size >= ALONE && md_device_differ_can(session, one | two, size)))
		return md_device_differ_launch(session, one, two, size, flag, err);
	return add(session, (struct md_device_piece){one, two, size, session->flags + flag}, err);
}

enum md_status md_device_batch_fill(struct md_device_session *session, uint64_t to, uint32_t word, uint64_t size,
				    struct md_error *err)
{
	return add(session, (struct md_device_piece){to, 0, size, (uint64_t)word << 32 | word}, err);
}

enum md_status md_device_batch_set(struct md_device_session *session, uint64_t to, uint64_t value, struct md_error *err)
{
	return add(session, (struct md_device_piece){to, 0, sizeof(value), value}, err);
}

enum md_status md_device_batch_read(struct md_device_session *session, size_t at, uint64_t from, uint64_t size,
				    struct md_error *err)
{
	session->moved_bytes += size;
	if (!session->pieces || at + size > STAGE)
		return md_cuda_call(err, cuMemcpyDtoHAsync_v2, session->now + at, from, size, session->stream);
	session->staged = at + size;
	return md_device_batch_copy(session, session->stage + at, from, size, err);
}

enum md_status md_device_batch_read_wait(struct md_device_session *session, struct md_error *err)
{
	size_t staged = session->staged;
	session->staged = 0;
	MD_FORWARD(md_device_batch_launch(session, err));
	if (staged)
		MD_FORWARD(
		    md_cuda_call(err, cuMemcpyDtoHAsync_v2, session->now, session->stage, staged, session->stream));
	return md_device_session_wait(session, err);
}

/* ---- trying it out ---- */

#define TRIED 20000u /* bytes */
#define FILLED 41u

struct
try {
	uint32_t at, size; /* of the copy */
	uint32_t changed;  /* an offset in it, after which the two differ */
};

static const struct try tries[] = {{0, TRIED, 0},         {16, 4096 + 48, 4096 + 47}, {7, 9000, 8192},
				   {32, 15, 14},          {48, 8192, 4095},           {1, 1, 0},
				   {64, TRIED - 64, 5000}};

/* Copies a part, changes one byte of it by a fill, and compares: that grain alone must differ. */
static bool tries_right(struct md_device_session *session, CUdeviceptr one, CUdeviceptr two, const struct try *try)
{
	size_t grains = (try->size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN;
	uint8_t *there = session->now + TRIED;
	struct md_error err = {0};
	if (md_cuda_call(&err, cuMemsetD8Async, two, 0, TRIED, session->stream) != MD_OK ||
	    md_device_batch_copy(session, two + try->at, one + try->at, try->size, &err) != MD_OK ||
	    md_device_batch_launch(session, &err) != MD_OK ||
	    md_device_batch_fill(session, two + try->at + try->changed, 0x01010101u * FILLED, 1, &err) != MD_OK ||
	    md_device_batch_launch(session, &err) != MD_OK || md_device_differ_begin(session, grains, &err) != MD_OK ||
	    md_device_batch_differ(session, one + try->at, two + try->at, try->size, 0, &err) != MD_OK ||
	    md_device_batch_launch(session, &err) != MD_OK || md_device_differ_end(session, grains, &err) != MD_OK ||
	    md_device_session_read(session, there, two, TRIED, &err) != MD_OK)
		return false;
	for (size_t i = 0; i < grains; i++)
		if (session->flag_bytes[i] != (try->changed / MD_DEVICE_GRAIN == i))
			return false;
	for (uint32_t i = 0; i < TRIED; i++) {
		bool inside = i >= try->at && i < try->at + try->size;
		uint8_t expected = i == try->at + try->changed ? FILLED : inside ? session->now[i] : 0;
		if (there[i] != expected)
			return false;
	}
	return true;
}

static bool fills_right(struct md_device_session *session, CUdeviceptr memory)
{
	const uint32_t word = 0x04030201u;
	struct md_error err = {0};
	if (md_cuda_call(&err, cuMemsetD8Async, memory, 0, 64, session->stream) != MD_OK ||
	    md_device_batch_fill(session, memory + 4, word, 42, &err) != MD_OK ||
	    md_device_batch_launch(session, &err) != MD_OK ||
	    md_device_session_read(session, session->now, memory, 64, &err) != MD_OK)
		return false;
	for (uint32_t i = 0; i < 64; i++)
		if (session->now[i] != (i >= 4 && i < 46 ? 1 + i % 4 : 0))
			return false;
	return true;
}

static bool is_right(struct md_device_session *session)
{
	CUdeviceptr memory = md_device_session_take(session, OWN_TRIED);
	struct md_error err = {0};
	bool right = memory != 0;
	for (uint32_t i = 0; i < TRIED; i++)
		session->now[i] = (uint8_t)((i * 2654435761u >> 13) | 0x80); /* never what the test fills in */
	right = right && md_device_session_write(session, memory, session->now, TRIED, &err) == MD_OK;
	for (size_t i = 0; right && i < sizeof(tries) / sizeof(tries[0]); i++)
		right = tries_right(session, memory, memory + OWN_TRIED / 2, &tries[i]);
	return right && fills_right(session, memory) && md_device_batch_wait(session, &err) == MD_OK;
}

static bool take_table(struct md_device_session *session)
{
	const size_t bytes = TABLE * sizeof(struct md_device_piece);
	void *locked = NULL;
	if (bytes + OWN_TRIED + STAGE > session->device_left / SHARE ||
	    !md_device_session_reserve(session, bytes + OWN_TRIED + STAGE))
		return false;
	session->table = md_device_session_take(session, bytes);
	session->stage = md_device_session_take(session, STAGE);
	session->table_locked = md_cuda.cuMemHostAlloc(&locked, bytes, 0) == CUDA_SUCCESS;
	session->table_bytes = session->table_locked ? locked : malloc(bytes);
	return session->table && session->stage && session->table_bytes;
}

void md_device_pieces_load(struct md_device_session *session)
{
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	if (session->differ)
		result = md_device_kernel_load(&md_cuda, kernel_text, "md_probe_pieces", &session->pieces_module,
					       &session->pieces);
	if (!result && take_table(session) && is_right(session))
		return;
	session->pieces = NULL;
	session->piece_count = session->pieces_launched = 0;
	if (session->differ)
		md_debug("pieces of memory are copied one by one: %s",
			 result ? md_cuda_error_name(result)
				: "no device memory is left for their table, or the kernel failed its own test");
}

void md_device_pieces_unload(struct md_device_session *session)
{
	if (session->table_locked)
		md_cuda.cuMemFreeHost(session->table_bytes);
	else
		free(session->table_bytes);
	if (session->pieces_module)
		md_cuda.cuModuleUnload(session->pieces_module);
}
