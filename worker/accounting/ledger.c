/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/ledger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/thread.h"
#include "json/tree_text.h"
#include "worker/accounting/ledger_file.h"
#include "worker/accounting/steady_day.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define FLUSH_S 1
#define ROWS_MAX 100000u /* that wait for the thread; requests beyond are lost */
#define US 1000000       /* of a second */

struct question {
	struct question *next;
	int64_t since;
	bool sums;                                                           /* are wanted, since then */
	void (*work)(void *context, const char *path, struct md_error *err); /* NULL: none is wanted */
	void (*done)(void *context, char *text, const struct md_error *err); /* NULL: nobody waits */
	void *context;
	char *text;
	struct md_error err;
};

struct md_ledger {
	const char *path;
	int64_t keep_us; /* single requests; 0: none */
	pthread_t thread;
	struct event *tick, *answer;
	int answered;               /* an eventfd */
	struct md_ledger_rows rows; /* of the loop: not handed over yet */
	/* what follows is guarded by the mutex */
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct md_ledger_rows handed;
	struct question *asked, *done;
	uint64_t lost;
	bool stop;
	/* of the thread */
	struct md_ledger_file *file;
	struct md_steady_day day;
	bool said; /* that writing fails; once, until it works again */
};

/* ---- rows ---- */

static void free_rows(struct md_ledger_rows *rows)
{
	for (size_t i = 0; i < rows->count; i++)
		free(rows->items[i].model);
	for (size_t i = 0; i < rows->request_count; i++)
		free(rows->requests[i].model);
	free(rows->items);
	free(rows->requests);
	*rows = (struct md_ledger_rows){0};
}

static uint64_t requests_of(const struct md_ledger_rows *rows)
{
	uint64_t requests = 0;
	for (size_t i = 0; i < rows->count; i++)
		requests += rows->items[i].usage.of[MD_USAGE_REQUESTS];
	return requests;
}

static void lose(struct md_ledger *ledger, uint64_t requests)
{
	pthread_mutex_lock(&ledger->mutex);
	ledger->lost += requests;
	pthread_mutex_unlock(&ledger->mutex);
}

uint64_t md_ledger_lost(struct md_ledger *ledger)
{
	pthread_mutex_lock(&ledger->mutex);
	uint64_t lost = ledger->lost;
	pthread_mutex_unlock(&ledger->mutex);
	return lost;
}

/* Few models and keys are in use within a second, and the last one is the likeliest. */
static struct md_ledger_row *find_row(struct md_ledger_rows *rows, int64_t minute, const char *model, const char *key)
{
	for (size_t i = rows->count; i--;) {
		struct md_ledger_row *row = &rows->items[i];
		if (row->minute == minute && !strcmp(row->model, model) && !strcmp(row->key, key))
			return row;
	}
	if (rows->count >= ROWS_MAX || !MD_ARRAY_GROW(rows->items, rows->count, rows->room))
		return NULL;
	struct md_ledger_row *row = &rows->items[rows->count];
	*row = (struct md_ledger_row){.minute = minute, .model = strdup(model)};
	snprintf(row->key, sizeof(row->key), "%s", key);
	rows->count += row->model != NULL;
	return row->model ? row : NULL;
}

void md_ledger_add(struct md_ledger *ledger, const char *model, const char *key, const struct md_usage *usage)
{
	int64_t now = time(NULL);
	struct md_ledger_row *row = find_row(&ledger->rows, now - now % 60, model, key);
	if (!row)
		lose(ledger, usage->of[MD_USAGE_REQUESTS]);
	for (int kind = 0; row && kind < MD_USAGE_KINDS; kind++)
		row->usage.of[kind] += usage->of[kind];
}

/* A request for which there is no room is missing, and nobody is told; the sums have it all the same. */
static void append_request(struct md_ledger_rows *rows, const struct md_ledger_request *request, char *model)
{
	if (!model || rows->request_count >= ROWS_MAX ||
	    !MD_ARRAY_GROW(rows->requests, rows->request_count, rows->request_room)) {
		free(model);
		return;
	}
	rows->requests[rows->request_count] = *request;
	rows->requests[rows->request_count++].model = model;
}

void md_ledger_note(struct md_ledger *ledger, const struct md_ledger_request *request)
{
	if (ledger->keep_us)
		append_request(&ledger->rows, request, strdup(request->model));
}

static bool has_rows(const struct md_ledger_rows *rows)
{
	return rows->count || rows->request_count;
}

/* ---- the thread ---- */

static enum md_status open_file(struct md_ledger *ledger, struct md_error *err)
{
	return ledger->file ? MD_OK : md_ledger_file_open(ledger->path, &ledger->file, err);
}

/* A file that has failed is opened anew the next time: a disk may have room again, and a file may have been replaced. */
static void write_rows(struct md_ledger *ledger, struct md_ledger_rows *rows)
{
	struct md_error err = {0};
	uint64_t patience = (uint64_t)ledger->keep_us * 1000;
	int64_t now = md_steady_day_now(&ledger->day, (int64_t)time(NULL) * US, md_clock_ns(), patience);
	enum md_status status = has_rows(rows) ? open_file(ledger, &err) : MD_OK;
	if (status == MD_OK && has_rows(rows)) {
		status = md_ledger_file_add(ledger->file, rows, now - ledger->keep_us, &err);
		if (status != MD_OK)
			md_error_prefix(&err, "%.200s", ledger->path);
	}
	if (status != MD_OK) {
		md_ledger_file_close(ledger->file);
		ledger->file = NULL;
		if (!ledger->said)
			md_error_log("medusa.state: what is used is not written, and lost until that works: %s",
				     err.message);
		lose(ledger, requests_of(rows)); /* whoever sees the number finds the reason */
	} else if (has_rows(rows) && ledger->said) {
		md_warn("medusa.state: what is used is written again: %.200s", ledger->path);
	}
	ledger->said = status != MD_OK || (ledger->said && !has_rows(rows));
	free_rows(rows);
}

/* Of many models and keys it is long, so nothing of it is left to the loop. */
static void answer_question(struct md_ledger *ledger, struct question *question)
{
	json_t *sums;
	bool opened = open_file(ledger, &question->err) == MD_OK;
	if (opened && question->work && md_ledger_file_has_moved(ledger->file))
		md_error_set(
		    &question->err, MD_ERR_CORRUPT,
		    "%.200s is not the file to which this daemon writes, which was removed, moved or replaced: "
		    "end the daemon, put the file back, and start it anew",
		    ledger->path);
	else if (opened && question->work)
		question->work(question->context, ledger->path, &question->err);
	if (!opened || !question->sums ||
	    md_ledger_file_sum(ledger->file, question->since, &sums, &question->err) != MD_OK)
		return;
	json_t *answer = json_pack("{s:o}", "usage", sums);
	question->text = answer ? md_jansson_print(answer, JSON_COMPACT) : NULL;
	json_decref(answer);
	if (!question->text)
		md_error_set(&question->err, MD_ERR_NO_MEMORY, "out of memory for the bill");
}

/* Called with the mutex held; it is not held meanwhile. */
static void work(struct md_ledger *ledger)
{
	struct md_ledger_rows rows = ledger->handed;
	struct question *question = ledger->asked;
	ledger->handed = (struct md_ledger_rows){0};
	if (question)
		ledger->asked = question->next;
	pthread_mutex_unlock(&ledger->mutex);
	write_rows(ledger, &rows);
	if (question)
		answer_question(ledger, question);
	pthread_mutex_lock(&ledger->mutex);
	if (!question)
		return;
	question->next = ledger->done;
	ledger->done = question;
	eventfd_write(ledger->answered, 1);
}

static void *run(void *argument)
{
	struct md_ledger *ledger = argument;
	pthread_mutex_lock(&ledger->mutex);
	while (!ledger->stop || has_rows(&ledger->handed) || ledger->asked) {
		if (has_rows(&ledger->handed) || ledger->asked)
			work(ledger);
		else
			pthread_cond_wait(&ledger->wake, &ledger->mutex);
	}
	pthread_mutex_unlock(&ledger->mutex);
	md_ledger_file_close(ledger->file);
	return NULL;
}

/* ---- the loop ---- */

/* Rows that the thread has not taken yet stay there, and these stay here, where they are counted together. */
static void hand_over(struct md_ledger *ledger)
{
	if (pthread_mutex_trylock(&ledger->mutex))
		return;
	if (!has_rows(&ledger->handed)) {
		ledger->handed = ledger->rows;
		ledger->rows = (struct md_ledger_rows){0};
	}
	pthread_cond_signal(&ledger->wake);
	pthread_mutex_unlock(&ledger->mutex);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct md_ledger *ledger = context;
	(void)fd, (void)what;
	if (has_rows(&ledger->rows))
		hand_over(ledger);
}

static void tell(struct question *question)
{
	if (question->done)
		question->done(question->context, question->text, &question->err);
	else
		free(question->text);
	free(question);
}

static void on_answer(evutil_socket_t fd, short what, void *context)
{
	struct md_ledger *ledger = context;
	eventfd_t count;
	(void)what;
	eventfd_read(fd, &count);
	pthread_mutex_lock(&ledger->mutex);
	struct question *question = ledger->done;
	ledger->done = NULL;
	pthread_mutex_unlock(&ledger->mutex);
	while (question) {
		struct question *next = question->next;
		tell(question);
		question = next;
	}
}

/* Rows of the loop go with it, behind those that were handed over: a sum has all that was added before. */
static void join_rows(struct md_ledger *ledger)
{
	if (!has_rows(&ledger->handed)) {
		ledger->handed = ledger->rows;
		ledger->rows = (struct md_ledger_rows){0};
		return;
	}
	for (size_t i = 0; i < ledger->rows.count; i++) {
		const struct md_ledger_row *from = &ledger->rows.items[i];
		struct md_ledger_row *to = find_row(&ledger->handed, from->minute, from->model, from->key);
		if (!to)
			ledger->lost += from->usage.of[MD_USAGE_REQUESTS];
		for (int kind = 0; to && kind < MD_USAGE_KINDS; kind++)
			to->usage.of[kind] += from->usage.of[kind];
	}
	for (size_t i = 0; i < ledger->rows.request_count; i++) {
		append_request(&ledger->handed, &ledger->rows.requests[i], ledger->rows.requests[i].model);
		ledger->rows.requests[i].model = NULL;
	}
	free_rows(&ledger->rows);
}

static void *ask(struct md_ledger *ledger, struct question wanted)
{
	struct question *question = malloc(sizeof(*question)), **at = &ledger->asked;
	if (!question)
		return NULL;
	*question = wanted;
	pthread_mutex_lock(&ledger->mutex);
	join_rows(ledger);
	while (*at)
		at = &(*at)->next;
	*at = question;
	pthread_cond_signal(&ledger->wake);
	pthread_mutex_unlock(&ledger->mutex);
	return question;
}

void *md_ledger_sum(struct md_ledger *ledger, int64_t since,
		    void (*done)(void *context, char *text, const struct md_error *err), void *context)
{
	return ask(ledger, (struct question){.since = since, .sums = true, .done = done, .context = context});
}

void *md_ledger_flush(struct md_ledger *ledger, void (*done)(void *context, char *text, const struct md_error *err),
		      void *context)
{
	return ask(ledger, (struct question){.done = done, .context = context});
}

bool md_ledger_work(struct md_ledger *ledger, void (*read)(void *context, const char *path, struct md_error *err),
		    void (*done)(void *context, char *none, const struct md_error *err), void *context)
{
	return ask(ledger, (struct question){.work = read, .done = done, .context = context});
}

void md_ledger_forget(void *context)
{
	struct question *question = context;
	question->done = NULL;
}

/* ---- beginning and end ---- */

static void free_ledger(struct md_ledger *ledger)
{
	if (ledger->tick)
		event_free(ledger->tick);
	if (ledger->answer)
		event_free(ledger->answer);
	if (ledger->answered >= 0)
		close(ledger->answered);
	free_rows(&ledger->rows);
	free_rows(&ledger->handed);
	pthread_mutex_destroy(&ledger->mutex);
	pthread_cond_destroy(&ledger->wake);
	free(ledger);
}

struct md_ledger *md_ledger_create(struct event_base *base, const char *path, uint64_t keep_ns)
{
	struct timeval wait = {.tv_sec = FLUSH_S};
	struct md_ledger *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->path = path;
	made->keep_us = (int64_t)(keep_ns / 1000);
	md_steady_day_now(&made->day, (int64_t)time(NULL) * US, md_clock_ns(), keep_ns);
	made->answered = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&made->mutex, NULL);
	pthread_cond_init(&made->wake, NULL);
	made->tick = event_new(base, -1, EV_PERSIST, on_tick, made);
	made->answer =
	    made->answered < 0 ? NULL : event_new(base, made->answered, EV_READ | EV_PERSIST, on_answer, made);
	if (made->tick && made->answer && !event_add(made->tick, &wait) && !event_add(made->answer, NULL) &&
	    !md_thread_start(&made->thread, run, made))
		return made;
	free_ledger(made);
	return NULL;
}

void md_ledger_destroy(struct md_ledger *ledger)
{
	if (!ledger)
		return;
	pthread_mutex_lock(&ledger->mutex);
	join_rows(ledger);
	ledger->stop = true;
	pthread_cond_signal(&ledger->wake);
	pthread_mutex_unlock(&ledger->mutex);
	pthread_join(ledger->thread, NULL);
	while (ledger->done) {
		struct question *question = ledger->done;
		ledger->done = question->next;
		if (!question->work)
			question->done = NULL; /* whoever waits for a text is gone, and who has work is not */
		tell(question);
	}
	free_ledger(ledger);
}
