/* SPDX-License-Identifier: Apache-2.0 */
/* Runs an engine with one of our libraries preloaded. */
#ifndef MD_TOOLS_RUN_H
#define MD_TOOLS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum md_run_left {
	MD_RUN_OVER,    /* what the run was for has happened, or can no longer happen */
	MD_RUN_AT_WORK, /* a process is working on it */
	MD_RUN_UNKNOWN, /* no process has begun: it is waited for at most a minute */
};

struct md_run {
	const char *preload;    /* file name of the library, "libmedusa-capture.so"; NULL for none */
	const char *const *env; /* "NAME=value", set for the command */
	size_t env_count;
	char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH */
	/*
	 * Asked again and again when the command has ended and has left processes behind, as daemons do: MD_RUN_OVER,
	 * or why to go on waiting for them. *pid: who does the work, or has done it and is still there, to be passed signals, and
	 * ended after done(); 0 if that is not known.
	 * NULL: nobody is waited for.
	 */
	enum md_run_left (*left)(void *user, pid_t *pid);
	/*
	 * Asked again and again while the command runs, or what it has left behind: true once it may be ended, by SIGTERM, and ten
	 * seconds later by md_family_end(). NULL: the command runs to its end.
	 */
	bool (*done)(void *user);
	unsigned pace_ms; /* between two such questions; 0: 50 */
	/* Called again and again while neither the command has ended nor done() was true. NULL: nobody looks on. */
	void (*look)(void *user);
	/*
	 * How long after its start this may go on, with the processes that the command leaves behind; 0: without end. When the
	 * time has passed, late() is called while all still run, then *is_late is set, and the command is ended as after done(), with
	 * everything that it has started, daemons too. Neither pointer is NULL if there is a limit.
	 */
	uint64_t limit_ns;
	void (*late)(void *user);
	bool *is_late;
	void *user;
};

/* The place of the libraries, relative to the folder of the commands. */
extern const char md_run_libdir[];

/*
 * Runs the command and waits. *exit_code is as in a shell: 128 + signal when one killed it. SIGINT, SIGTERM and SIGHUP
 * sent to this process are passed on (tools/stop.h). The library is looked for as tools/preload.h says and comes before
 * what LD_PRELOAD holds already. Errors: MD_ERR_NOT_FOUND (library or command), MD_ERR_IO.
 */
enum md_status md_run_child(const struct md_run *run, int *exit_code, struct md_error *err);

/* The same with the command's stdout going to output, so that our own stdout holds nothing but our report. */
enum md_status md_run_child_output(const struct md_run *run, int output, int *exit_code, struct md_error *err);

/* The same in place of this process (execve); returns only on failure. */
enum md_status md_run_exec(const struct md_run *run, struct md_error *err);

#endif
