/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that read tables in memory that nobody binds by an index that an input holds: in a capture always the first
 * row. Kernels: tests/images/tables_kernels.c. */
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/* clang-format off */
/*
 * TABLE says which; IMAGE has the kernels. stdout: what each row gave, and what it should have given. stderr: how the
 * graph came.
 *   experts   two rows of 64 KiB, copied from the host, in one allocation
 *   rows      64 rows of 1 KiB, likewise
 *   beside    the same; behind the table lies what the graph computes, and behind that what differs each time
 *   one       the same with one address for both: what the graph computes has no address of its own
 *   made      rows that a kernel makes
 *   pointers  a table of 64 addresses of rows, which are bound
 *   differs   rows of which the last one is another in each process
 *   large     so much behind the table that it is not saved
 *   apart     rows in allocations of their own, by addresses that lie in memory
 *   pair      rows in allocations of their own, which the graph has both addresses of
 *   set       the same, where the second one is set, not copied
 *   garbage   the same, where a kernel makes the second one
 */
/* clang-format on */
enum { ROW = 256, ROWS = 64, BYTES = ROWS * ROW * 4, EXPERT = BYTES / 4 };

static CUdeviceptr in, out, index_of, rows; /* bound */
static CUdeviceptr table, second, scratch, behind;
static CUfunction by_row, by_list, by_pair, by_own, make;
static CUstream stream;
static const char *kind;

static bool is(const char *name)
{
	return !strcmp(kind, name);
}

static CUdeviceptr take(const char *name, size_t bytes, enum medusa_role role)
{
	CUdeviceptr address;
	TRY(cuMemAlloc_v2, &address, bytes);
	TRY(cuMemsetD8_v2, address, 0, bytes);
	TRY(cuCtxSynchronize); /* the stream does not wait for it */
	if (name && medusa_bind(name, address, bytes, role) != MEDUSA_OK)
		fprintf(stderr, "%s is not bound: %s\n", name, medusa_reason());
	return address;
}

static uint32_t value_of(uint32_t row, uint32_t at)
{
	return 1000 * (row + 1) + at;
}

static void fill(CUdeviceptr address, uint32_t row, uint32_t words)
{
	static uint32_t values[EXPERT];
	for (uint32_t i = 0; i < words; i++)
		values[i] = value_of(row, i);
	TRY(cuMemcpyHtoD_v2, address, values, words * 4);
}

static void launch_make(CUdeviceptr to, uint32_t count, uint32_t first)
{
	void *params[] = {&to, &count, &first};
	TRY(cuLaunchKernel, make, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	TRY(cuStreamSynchronize, stream);
}

static uint32_t words(void)
{
	return is("experts") || is("apart") || is("pair") || is("set") || is("garbage") ? EXPERT : ROW;
}

static uint32_t row_count(void)
{
	return words() == EXPERT ? 2 : ROWS;
}

static void fill_rows(CUdeviceptr to)
{
	for (uint32_t row = 0; row < row_count(); row++) {
		if (is("made"))
			launch_make(to + row * words() * 4, words(), value_of(row, 0));
		else
			fill(to + row * words() * 4, row, words());
	}
}

static void set_up_pointers(void)
{
	CUdeviceptr addresses[ROWS];
	for (int row = 0; row < ROWS; row++)
		addresses[row] = rows + (CUdeviceptr)row * ROW * 4;
	fill_rows(rows);
	table = take(NULL, sizeof(addresses), 0);
	TRY(cuMemcpyHtoD_v2, table, addresses, sizeof(addresses));
}

/* The address of the one that is not read is either a parameter or lies in memory. */
static void set_up_apart(void)
{
	CUdeviceptr one = take(NULL, EXPERT * 4, 0), addresses[2];
	second = take(NULL, EXPERT * 4, 0);
	fill(one, 0, EXPERT);
	if (is("set"))
		TRY(cuMemsetD32_v2, second, value_of(1, 0), EXPERT);
	else if (is("garbage"))
		launch_make(second, EXPERT, value_of(1, 0));
	else
		fill(second, 1, EXPERT);
	table = one;
	if (!is("apart"))
		return;
	addresses[0] = one;
	addresses[1] = second;
	table = take(NULL, sizeof(addresses), 0);
	TRY(cuMemcpyHtoD_v2, table, addresses, sizeof(addresses));
}

static void set_up_table(void)
{
	size_t more = is("large") ? 80 << 20 : is("beside") || is("one") ? 2 * BYTES : 0;
	uint32_t mine = (uint32_t)getpid();
	table = take(NULL, is("experts") ? 2 * EXPERT * 4 : BYTES + more, 0);
	fill_rows(table);
	scratch = table + BYTES;
	behind = scratch + ROW * 4;
	if (more)
		TRY(cuMemsetD32_v2, behind, is("large") ? 7 : mine, (more - ROW * 4) / 4);
	if (is("differs"))
		TRY(cuMemcpyHtoD_v2, table + BYTES - ROW * 4 + 8, &mine, 4);
}

static void set_up(void)
{
	index_of = take("index", 256, MEDUSA_BIND_INPUT);
	out = take("out", EXPERT * 4, MEDUSA_BIND_OUTPUT);
	in = take("in", EXPERT * 4, MEDUSA_BIND_INPUT);
	rows = take("rows", BYTES, MEDUSA_BIND_CONSTANT);
	if (is("pointers"))
		set_up_pointers();
	else if (words() == EXPERT && !is("experts"))
		set_up_apart();
	else
		set_up_table();
	TRY(cuCtxSynchronize);
}

static void launch_rows(void)
{
	CUfunction function = is("pointers") || is("apart") ? by_list : is("one") ? by_own : by_row;
	uint32_t count = row_count(), n = words();
	CUdeviceptr to = is("beside") ? scratch : out;
	void *params[] = {&to, &in, &table, &index_of, &count, &n};
	void *pair[] = {&out, &in, &table, &second, &index_of, &n};
	if (second && !is("apart"))
		TRY(cuLaunchKernel, by_pair, 1, 1, 1, 1, 1, 1, 0, stream, pair, NULL);
	else
		TRY(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	if (to == scratch)
		TRY(cuMemcpyDtoDAsync_v2, out, scratch, n * 4, stream);
}

static CUgraphExec get(void)
{
	void *exec = NULL;
	if (medusa_graph_get("rows", 1, UINT64_MAX, &exec) == MEDUSA_OK) {
		fprintf(stderr, "rows restored\n");
		return exec;
	}
	fprintf(stderr, "rows live %s\n", medusa_reason());
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	launch_rows();
	exec = end_capture(stream);
	medusa_graph_label(exec, "rows", 1);
	return exec;
}

/* The last word of a row. */
static void replay(CUgraphExec exec, uint32_t row, uint32_t value)
{
	uint32_t word = 0, wanted = value_of(row, is("set") && row ? 0 : words() - 1) + value;
	TRY(cuMemsetD32_v2, in, value, EXPERT);
	TRY(cuMemcpyHtoD_v2, index_of, &row, sizeof(row));
	TRY(cuCtxSynchronize);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, &word, out + (words() - 1) * 4, sizeof(word));
	printf("out %u, wanted %u\n", word, wanted);
}

int main(void)
{
	CUmodule module;
	CUgraphExec exec;
	bool served;
	kind = getenv("TABLE") ? getenv("TABLE") : "rows";
	load_driver();
	open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuModuleLoadData, &module, read_file(getenv("IMAGE")));
	TRY(cuModuleGetFunction, &by_row, module, "tables_rows");
	TRY(cuModuleGetFunction, &by_list, module, "tables_lists");
	TRY(cuModuleGetFunction, &by_pair, module, "tables_pair");
	TRY(cuModuleGetFunction, &by_own, module, "tables_own");
	TRY(cuModuleGetFunction, &make, module, "tables_make");
	set_up();
	exec = get();
	served = medusa_mode() == MEDUSA_MODE_CAPTURE || medusa_mode() == MEDUSA_MODE_VERIFY;
	for (uint32_t value = 0; value < 3; value++)
		replay(exec, 0, value);
	for (uint32_t row = 1; !served && row < row_count(); row++)
		if (!is("differs") || row + 1 < row_count())
			replay(exec, row, row);
	medusa_mark("ready");
	return 0;
}
