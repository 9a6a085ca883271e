/* SPDX-License-Identifier: Apache-2.0 */
/* State that the parts of the capture library share: one recording per process, and the verbs that write into it. */
#ifndef MD_CAPTURE_CAPTURE_H
#define MD_CAPTURE_CAPTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/child.h"
#include "base/interval.h"
#include "driver/alloc_sequence.h"
#include "driver/cuda_driver.h"
#include "driver/interpose.h"
#include "format/trace/trace.h"

#define MD_LOG_DOMAIN "capture"
#include "base/guarded.h"
#include "base/log.h"

#define MD_TRACE_PATH_BYTES 4096

enum md_capture_until { MD_UNTIL_EXIT, MD_UNTIL_GRAPHS, MD_UNTIL_MARK };
enum md_capture_store { MD_STORE_ANONYMOUS, MD_STORE_ALL, MD_STORE_NONE };

/* Settings from the environment, which are read once, before the first hook acts. */
struct md_capture_options {
	char trace[MD_TRACE_PATH_BYTES]; /* MEDUSA_TRACE */
	enum md_capture_until until;
	uint64_t until_graphs;
	char until_mark[128];
	uint64_t shift;    /* MEDUSA_SHIFT, 0: none */
	uint64_t kv_bytes; /* MEDUSA_KV_BYTES, 0: measure */
	enum md_capture_store store;
	bool probe;                  /* MEDUSA_PROBE */
	uint64_t probe_limit;        /* MEDUSA_PROBE_LIMIT, bytes of host memory */
	uint64_t probe_device_limit; /* MEDUSA_PROBE_DEVICE_LIMIT, bytes of device memory */
};

struct md_capture_bind {
	char *name; /* owned */
	enum md_bind_role role;
	uint64_t address, size;
	struct md_hash hash; /* the first one, if `read` is set */
	bool read;
	bool hashed; /* the trace has a hash of it, or why it has none */
};

/* Not a member of struct md_capture, because in C an attribute of a member cannot name another member. */
extern pthread_mutex_t md_capture_mutex;

/* Behind a variable, and behind the parameters of a function whose caller holds the lock. */
#define MD_CAPTURE_GUARDED MD_GUARDED_BY(md_capture_mutex)
#define MD_CAPTURE_HELD MD_REQUIRES(md_capture_mutex)

/*
 * Once the recording has ended, a hook looks at `active` alone. The rest is touched under the lock, and the trace is
 * written under it alone, so that closing the trace needs no further care.
 */
struct md_capture {
	atomic_bool active;
	atomic_uint capturing; /* streams under stream capture */
	_Atomic uint64_t sequence;
	_Atomic uint64_t epoch; /* counts unloads: function handles of an older epoch may have been reused */
	struct md_capture_options options;

	struct md_trace_writer *writer MD_CAPTURE_GUARDED;
	/* allocations; value is the md_alloc_family, and MD_FAMILY_COUNTED */
	struct md_interval_index live MD_CAPTURE_GUARDED;
	struct md_interval_index binds MD_CAPTURE_GUARDED; /* value is an index into bound */
	struct md_capture_bind *bound MD_CAPTURE_GUARDED;
	size_t bind_count MD_CAPTURE_GUARDED;
	/* device memory in the order of its allocation, until the engine asks for a graph */
	struct md_alloc_sequence allocations MD_CAPTURE_GUARDED;
	struct md_kv kv MD_CAPTURE_GUARDED;
	uint64_t free_before_capture MD_CAPTURE_GUARDED; /* bytes, before the first stream capture; 0: not yet */
	uint64_t free_after_instantiate MD_CAPTURE_GUARDED;
};

extern struct md_capture md_capture;

/* Memory that became shared after this process had allocated it: the KV profile has counted it. */
#define MD_FAMILY_COUNTED 0x100u
#define MD_FAMILY_MASK 0xffu

/* ---- session/session.c: life of the recording ---- */

/* Starts the recording at the first call of the process. True: record, and call md_capture_leave after. */
bool md_capture_enter(void);
void md_capture_leave(void);
/* Says why once, ends the recording without completing the trace, and lets the engine run on. Lock held or not. */
void md_capture_trouble(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the recording if what --until names has been reached. Lock not held; inside a hook. */
void md_capture_check_until(const char *mark);
/* A graph is about to be launched: an engine that has labelled no graph by now will label none. */
void md_capture_check_launch(void);
/* A context is current for the first time: fingerprint and shift. Inside a hook, lock not held. */
void md_capture_context_seen(void);

static inline uint64_t md_capture_next(void)
{
	return atomic_fetch_add_explicit(&md_capture.sequence, 1, memory_order_relaxed) + 1;
}
static inline void md_capture_lock(void) MD_ACQUIRES(md_capture_mutex)
{
	md_child_check();
	pthread_mutex_lock(&md_capture_mutex);
}
static inline void md_capture_unlock(void) MD_RELEASES(md_capture_mutex)
{
	pthread_mutex_unlock(&md_capture_mutex);
}

#endif
