/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of a node from a CSV file: what goes wrong, when, and on which GPU. */
#include "simulator/workload/fault_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "simulator/config/yaml.h"

#define HEADER "seconds,fault,gpu,value"
#define FAULT_BYTES_MAX (16u << 20)
#define SECONDS_MAX 3e9
#define CELL_BYTES_MAX 256

enum value { VALUE_NONE, VALUE_BACKBONE, VALUE_BYTES, VALUE_TIME };

static const struct kind {
	const char *name;
	enum medusa_sched_event_type type;
	bool gpu; /* false: of the whole node */
	enum value value;
} kinds[] = {
    {"gpu-lost", MEDUSA_SCHED_EVENT_GPU_LOST, true, VALUE_NONE},
    {"gpu-drain", MEDUSA_SCHED_EVENT_GPU_DRAIN, true, VALUE_NONE},
    {"gpu-back", MEDUSA_SCHED_EVENT_GPU_BACK, true, VALUE_NONE},
    {"backbone-failed", MEDUSA_SCHED_EVENT_BACKBONE_FAILED, true, VALUE_BACKBONE},
    {"transfer-failed", MEDUSA_SCHED_EVENT_TRANSFER_FAILED, true, VALUE_NONE},
    {"batch-failed", MEDUSA_SCHED_EVENT_BATCH_FAILED, true, VALUE_NONE},
    {"memory-limit", MEDUSA_SCHED_EVENT_MEMORY_LIMIT, true, VALUE_BYTES},
    {"report-lag", MEDUSA_SCHED_EVENT_MEMORY_REPORT, false, VALUE_TIME}, /* as the node model takes it */
};

enum { SECONDS, FAULT, GPU, VALUE, CELLS };
static const char *const columns[CELLS] = {"seconds", "fault", "gpu", "value"};

struct reader {
	const char *name;
	uint32_t line;
	const struct md_sim_node *node;
	const struct md_sim_functions *functions;
	struct md_sim_workload *out;
	size_t capacity;
	char cells[CELLS][CELL_BYTES_MAX + 1];
	struct md_error *err;
};

static enum md_status refuse(const struct reader *reader, int column, const char *what)
{
	return md_error_set(reader->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": %s: '%.60s': %s", reader->name, reader->line,
			    columns[column], reader->cells[column], what);
}

static enum md_status split(struct reader *reader, const char *text, size_t bytes)
{
	const char *end = text + bytes;
	for (int i = 0; i < CELLS; i++) {
		const char *stop = memchr(text, ',', (size_t)(end - text));
		size_t length = (size_t)((stop ? stop : end) - text);
		if ((i < CELLS - 1) != (stop != NULL) || length > CELL_BYTES_MAX || memchr(text, '\0', length))
			return md_error_set(reader->err, MD_ERR_CORRUPT,
					    "%s:%" PRIu32 ": four columns are expected, %s", reader->name, reader->line,
					    HEADER);
		memcpy(reader->cells[i], text, length);
		reader->cells[i][length] = '\0';
		text = stop ? stop + 1 : end;
	}
	return MD_OK;
}

static enum md_status read_gpu(const struct reader *reader, const struct kind *kind, uint32_t *gpu)
{
	const char *text = reader->cells[GPU];
	char *end;
	if (!kind->gpu)
		return *text ? refuse(reader, GPU, "this fault is the whole node's; leave it empty") : MD_OK;
	for (*gpu = 0; *gpu < reader->node->gpu_count; ++*gpu)
		if (strcmp(reader->node->gpu_names[*gpu], text) == 0)
			return MD_OK;
	unsigned long index = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || index >= reader->node->gpu_count)
		return refuse(reader, GPU, "a GPU of the node is expected, by its name or number (the first is 0)");
	*gpu = (uint32_t)index;
	return MD_OK;
}

static enum md_status read_value(const struct reader *reader, const struct kind *kind, struct medusa_sched_event *fault)
{
	const char *text = reader->cells[VALUE], *wrong = NULL;
	switch (kind->value) {
	case VALUE_NONE:
		return *text ? refuse(reader, VALUE, "this fault has none; leave it empty") : MD_OK;
	case VALUE_BACKBONE:
		for (uint32_t i = 0; i < reader->functions->backbone_count; i++) {
			fault->backbone = i;
			if (strcmp(reader->functions->backbones[i].name, text) == 0)
				return MD_OK;
		}
		return refuse(reader, VALUE, "there is no such backbone");
	case VALUE_BYTES:
		wrong = md_units_bytes(text, &fault->bytes);
		break;
	default:
		wrong = md_units_time(text, &fault->bytes);
	}
	return wrong ? refuse(reader, VALUE, wrong) : MD_OK;
}

static enum md_status read_fault(struct reader *reader)
{
	struct md_sim_workload *out = reader->out;
	struct medusa_sched_event fault = {0};
	const char *wrong;
	double seconds;
	size_t kind = 0;
	if ((wrong = md_units_number(reader->cells[SECONDS], &seconds)))
		return refuse(reader, SECONDS, wrong);
	if (seconds > SECONDS_MAX)
		return refuse(reader, SECONDS, "up to 3000000000 seconds are possible");
	while (kind < sizeof(kinds) / sizeof(kinds[0]) && strcmp(kinds[kind].name, reader->cells[FAULT]))
		kind++;
	if (kind == sizeof(kinds) / sizeof(kinds[0]))
		return refuse(reader, FAULT,
			      "gpu-lost, gpu-drain, gpu-back, backbone-failed, transfer-failed, batch-failed, "
			      "memory-limit or report-lag is expected");
	if (kinds[kind].value == VALUE_TIME && !reader->node->report_every_ns)
		return refuse(reader, FAULT, "the node has no report_every, so there are no reports");
	fault.type = kinds[kind].type;
	fault.now = (uint64_t)(seconds * 1e9);
	MD_FORWARD(read_gpu(reader, &kinds[kind], &fault.gpu));
	MD_FORWARD(read_value(reader, &kinds[kind], &fault));
	if (out->fault_count && out->faults[out->fault_count - 1].now > fault.now)
		return refuse(reader, SECONDS, "it is before the line above; faults are listed by time");
	if (!MD_ARRAY_GROW(out->faults, out->fault_count, reader->capacity))
		return md_error_set(reader->err, MD_ERR_NO_MEMORY, "%s: out of memory for its faults", reader->name);
	out->faults[out->fault_count++] = fault;
	return MD_OK;
}

static enum md_status read_lines(struct reader *reader, const char *text, size_t bytes)
{
	const char *end = text + bytes, *next;
	bool header = false;
	if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		text += 3;
	for (; text < end; text = next) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		reader->line++;
		next = stop ? stop + 1 : end;
		stop = stop ? stop : end;
		stop -= stop > text && stop[-1] == '\r';
		if (stop == text)
			continue;
		if (!header && ((size_t)(stop - text) != strlen(HEADER) || memcmp(text, HEADER, strlen(HEADER))))
			return md_error_set(reader->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": the header %s is expected",
					    reader->name, reader->line, HEADER);
		if (header) {
			MD_FORWARD(split(reader, text, (size_t)(stop - text)));
			MD_FORWARD(read_fault(reader));
		}
		header = true;
	}
	if (!reader->out->fault_count)
		return md_error_set(reader->err, MD_ERR_CORRUPT, "%s:1: there are no faults in it", reader->name);
	return MD_OK;
}

enum md_status md_sim_faults_parse(const char *name, const char *text, size_t bytes, const struct md_sim_node *node,
				   const struct md_sim_functions *functions, struct md_sim_workload *workload,
				   struct md_error *err)
{
	struct md_sim_workload read = {0};
	struct reader reader = {.name = name, .node = node, .functions = functions, .out = &read, .err = err};
	enum md_status status = read_lines(&reader, text, bytes);
	if (status != MD_OK) {
		free(read.faults);
		return status;
	}
	free(workload->faults);
	workload->faults = read.faults;
	workload->fault_count = read.fault_count;
	return MD_OK;
}

enum md_status md_sim_faults_read(const char *path, const struct md_sim_node *node,
				  const struct md_sim_functions *functions, struct md_sim_workload *workload,
				  struct md_error *err)
{
	MD_AUTO_FREE char *text = NULL;
	size_t bytes;
	MD_FORWARD(md_sim_file_read(path, FAULT_BYTES_MAX, &text, &bytes, err));
	return md_sim_faults_parse(path, text, bytes, node, functions, workload, err);
}
