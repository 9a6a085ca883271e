/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/performance.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "json/tree_text.h"
#include "worker/core/gpu_memory.h"
#include "worker/core/loop_thread.h"
#include "worker/core/reply.h"
#include "worker/core/target.h"
#include "worker/core/worker.h"
#include "worker/page/machine_sample.h"

#define SAMPLES 720u /* an hour at 5 s */
#define LEAST_NS UINT64_C(5000000000)
#define STAMP_BYTES 40u

struct sample {
	int64_t at_us; /* since 1970 */
	char *system;  /* an object */
	char *gpus;    /* objects with commas between them; NULL: none was measured */
};

struct md_performance {
	struct md_worker *worker;
	struct event *tick;
	struct md_loop_thread *thread; /* takes a sample; NULL: none is under way */
	/* of the thread while it runs: */
	struct md_machine_cores cores;
	struct sample next;
	json_t *measured; /* GPUs, as they were when it began */
	/* of the loop: a ring, of which `first` is the oldest */
	struct sample samples[SAMPLES];
	unsigned first, count;
};

/* ---- a sample ---- */

static void free_sample(struct sample *sample)
{
	free(sample->system);
	free(sample->gpus);
	*sample = (struct sample){0};
}

static void print_stamp(int64_t us, char stamp[STAMP_BYTES])
{
	time_t seconds = (time_t)(us / 1000000);
	struct tm day;
	gmtime_r(&seconds, &day);
	size_t used = strftime(stamp, STAMP_BYTES, "%Y-%m-%dT%H:%M:%S", &day);
	snprintf(stamp + used, STAMP_BYTES - used, ".%06dZ", (int)(us % 1000000));
}

/* What NVML has said last, which another thread asks; in the loop. */
static json_t *list_gpus(const struct md_worker *worker)
{
	json_t *list = json_array();
	uint32_t count;
	md_gpus_list(worker->gpus, &count);
	for (uint32_t i = 0; i < count; i++) {
		struct md_gpu_measured found;
		if (md_gpu_memory_get(worker->gpu_memory, i, &found))
			json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:I, s:I}", "id", (json_int_t)i, "name",
							      found.product, "uuid", found.uuid, "mem_used_mb",
							      (json_int_t)(found.used >> 20), "mem_total_mb",
							      (json_int_t)(found.total >> 20)));
	}
	return list;
}

/* Objects of a list, one after the other. */
static char *print_list(json_t *list, const char *stamp)
{
	struct md_buf text;
	size_t i;
	json_t *at;
	md_buf_init(&text);
	json_array_foreach(list, i, at)
	{
		json_object_set_new(at, "timestamp", json_string(stamp));
		char *one = md_jansson_print(at, JSON_COMPACT);
		if (i)
			md_buf_put_u8(&text, ',');
		if (one)
			md_buf_put(&text, one, strlen(one));
		text.failed |= !one;
		free(one);
	}
	if (text.size)
		md_buf_put_u8(&text, 0);
	if (!text.failed)
		return (char *)text.data;
	md_buf_finish(&text);
	return NULL;
}

static void take_sample(void *context)
{
	struct md_performance *performance = context;
	char stamp[STAMP_BYTES];
	struct timespec day;
	json_t *system = md_machine_sample(&performance->cores);
	clock_gettime(CLOCK_REALTIME, &day);
	performance->next.at_us = (int64_t)day.tv_sec * 1000000 + day.tv_nsec / 1000;
	print_stamp(performance->next.at_us, stamp);
	json_object_set_new(system, "timestamp", json_string(stamp));
	performance->next.system = system ? md_jansson_print(system, JSON_COMPACT) : NULL;
	performance->next.gpus = print_list(performance->measured, stamp);
	json_decref(system);
}

static void on_taken(void *context)
{
	struct md_performance *performance = context;
	struct sample *next = &performance->next;
	performance->thread = NULL;
	json_decref(performance->measured);
	performance->measured = NULL;
	if (!next->system) {
		free_sample(next);
		return;
	}
	unsigned at = (performance->first + performance->count) % SAMPLES;
	free_sample(&performance->samples[at]);
	performance->samples[at] = *next;
	*next = (struct sample){0};
	if (performance->count < SAMPLES)
		performance->count++;
	else
		performance->first = (performance->first + 1) % SAMPLES;
}

static void forget_samples(struct md_performance *performance)
{
	for (unsigned i = 0; i < SAMPLES; i++)
		free_sample(&performance->samples[i]);
	performance->first = performance->count = 0;
}

/* The configuration may be another one since the last tick. */
static bool wait_on(struct md_performance *performance)
{
	const struct md_worker_config *config = performance->worker->config;
	uint64_t ns = config->performance && config->performance_ns > LEAST_NS ? config->performance_ns : LEAST_NS;
	struct timeval wait = {.tv_sec = (time_t)(ns / 1000000000u),
			       .tv_usec = (suseconds_t)(ns % 1000000000u / 1000u)};
	return !event_add(performance->tick, &wait);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct md_performance *performance = context;
	struct md_error ignored;
	(void)fd, (void)what;
	wait_on(performance);
	if (!performance->worker->config->performance)
		forget_samples(performance);
	else if (!performance->thread) {
		performance->measured = list_gpus(performance->worker);
		if (md_loop_thread_start(performance->worker->base, take_sample, on_taken, performance,
					 &performance->thread, &ignored) == MD_OK)
			return;
		json_decref(performance->measured); /* out of memory: this sample is left out */
		performance->measured = NULL;
	}
}

/* ---- the page ---- */

static bool read_zone(const char *at, int *seconds)
{
	int hours, minutes, used = 0;
	char sign = *at == ' ' ? '+' : *at; /* as forms write it */
	*seconds = 0;
	if ((*at == 'Z' || *at == 'z') && !at[1])
		return true;
	if ((sign != '+' && sign != '-') || sscanf(at + 1, "%2d:%2d%n", &hours, &minutes, &used) != 2 || used != 5 ||
	    at[6])
		return false;
	*seconds = (hours * 60 + minutes) * (sign == '-' ? -60 : 60);
	return true;
}

/* RFC 3339. */
static bool read_stamp(const char *text, int64_t *us)
{
	struct tm day = {0};
	int zone;
	int64_t part = 0, unit = 100000;
	const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &day);
	if (!at)
		return false;
	if (*at == '.')
		for (at++; *at >= '0' && *at <= '9'; at++, unit /= 10)
			part += (*at - '0') * unit;
	if (!read_zone(at, &zone))
		return false;
	*us = ((int64_t)timegm(&day) - zone) * 1000000 + part;
	return true;
}

static void put_text(struct md_buf *out, const char *text)
{
	md_buf_put(out, text, strlen(text));
}

static const struct sample *sample_at(const struct md_performance *performance, unsigned number)
{
	return &performance->samples[(performance->first + number) % SAMPLES];
}

/* "null" if there is none. */
static void put_samples(struct md_buf *out, const struct md_performance *performance, int64_t after, bool gpus)
{
	bool some = false;
	for (unsigned i = 0; i < performance->count; i++) {
		const struct sample *sample = sample_at(performance, i);
		const char *text = gpus ? sample->gpus : sample->system;
		if (sample->at_us <= after || !text)
			continue;
		put_text(out, some ? "," : "[");
		put_text(out, text);
		some = true;
	}
	put_text(out, some ? "]" : "null");
}

/* At most some megabytes, which are copied in a fraction of a millisecond. */
void md_performance_answer(struct md_performance *performance, struct md_http_exchange *exchange)
{
	const char *query = md_target_query(md_http_head_target(md_http_exchange_head(exchange)));
	char given[64];
	int64_t after = INT64_MIN;
	struct md_buf out;
	if (!performance->worker->config->performance) {
		md_reply_json(exchange, 503, json_pack("{s:b}", "enabled", 0));
		return;
	}
	if (md_target_value(query, "after", given, sizeof(given)) && !read_stamp(given, &after)) {
		md_reply_error(exchange, MD_REPLY_BAD_REQUEST, NULL,
			       "after is \"%.60s\": a time like 2026-11-29T12:00:00Z is wanted", given);
		return;
	}
	md_buf_init(&out);
	put_text(&out, "{\"enabled\":true,\"sys_stats\":");
	put_samples(&out, performance, after, false);
	put_text(&out, ",\"gpu_stats\":");
	put_samples(&out, performance, after, true);
	put_text(&out, "}");
	md_buf_put_u8(&out, 0);
	if (out.failed)
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the samples");
	else
		md_reply_text(exchange, 200, "application/json", (const char *)out.data);
	md_buf_finish(&out);
}

/* ---- beginning and end ---- */

struct md_performance *md_performance_create(struct md_worker *worker)
{
	struct md_performance *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->worker = worker;
	md_machine_cores_read(&made->cores);
	made->tick = evtimer_new(worker->base, on_tick, made);
	if (made->tick && wait_on(made))
		return made;
	md_performance_destroy(made);
	return NULL;
}

void md_performance_destroy(struct md_performance *performance)
{
	if (!performance)
		return;
	md_loop_thread_destroy(performance->thread);
	json_decref(performance->measured);
	free_sample(&performance->next);
	forget_samples(performance);
	if (performance->tick)
		event_free(performance->tick);
	free(performance);
}
