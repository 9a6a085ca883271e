/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that functions have in common and that exists once: what is saved is given to others, and never too much of it. */
#include <stdlib.h>

#include "tests/scheduler_draws.h"
#include "tests/scheduler_fixture.h"

static struct script n;

static void share(uint32_t function, uint64_t number, double gb)
{
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_SHARED,
						    .artifact = MEDUSA_SCHED_CLASS_WEIGHTS,
						    .function = function,
						    .share = number,
						    .bytes = (uint64_t)(gb * 1e9)});
}

static double shared_gb(void)
{
	return (double)script_books(&n, 0).shared_bytes / 1e9;
}

static double used_gb(void)
{
	struct medusa_sched_gpu_state g = script_books(&n, 0);
	return (double)(g.artifact_bytes + g.residue_bytes + g.kv_bytes - g.shared_bytes) / 1e9;
}

/* Models of 20 GB each on a GPU of so many; to leave takes time. */
static void start_models(double gb, int count)
{
	script_start(&n, &(struct setup){.gb = gb, .slots = 8});
	for (int i = 0; i < count; i++) {
		struct medusa_sched_function f = script_model(20);
		f.evict_ns = SECOND;
		script_add(&n, f);
	}
}

static void fail(uint32_t function)
{
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED, .function = function});
}

Test(scheduler_shares, a_third_one_fits_when_two_have_memory_in_common)
{
	start_models(45, 3);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	share(0, 7, 16);
	cr_assert_float_eq(shared_gb(), 0, 1e-9, "one alone shares nothing");
	share(1, 7, 16);
	cr_assert_float_eq(shared_gb(), 16, 1e-9);
	cr_assert_float_eq(used_gb(), 24, 1e-9);
	script_forget(&n);
	script_arrive(&n, 3, 2);
	expect(&n, "swap t3 weights f2 gpu0 host\nrun b3 f2 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_shares, who_leaves_takes_its_credit_along)
{
	start_models(45, 3);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	share(0, 7, 16);
	share(1, 7, 16);
	script_serve(&n, 3, 2);
	fail(0); /* idle, so it leaves at once */
	cr_assert_float_eq(used_gb(), 44, 1e-9, "until it has left, both count");
	script_evicted(&n, 4);
	cr_assert_float_eq(shared_gb(), 0, 1e-9);
	cr_assert_float_eq(used_gb(), 40, 1e-9);
	script_end(&n);
}

/* The least recently used one frees 4 GB alone, as the others hold the rest: another one has to leave as well. */
Test(scheduler_shares, who_leaves_frees_what_nobody_else_has)
{
	start_models(53, 4);
	for (uint32_t f = 0; f < 3; f++) {
		script_serve(&n, f + 1, f);
		share(f, 7, 16);
	}
	cr_assert_float_eq(used_gb(), 28, 1e-9);
	script_serve(&n, 4, 3);
	struct medusa_sched_function f = script_model(20);
	f.evict_ns = SECOND;
	script_add(&n, f);
	cr_assert_float_eq(used_gb(), 48, 1e-9);
	script_forget(&n);
	script_arrive(&n, 5, 4);
	expect(&n, "evict t5 weights f0 gpu0\nevict t6 weights f1 gpu0\nevict t7 weights f2 gpu0\n");
	script_evicted(&n, 5);
	script_evicted(&n, 6);
	expect(&n, "");
	script_evicted(&n, 7);
	expect(&n, "swap t8 weights f4 gpu0 host\nrun b5 f4 gpu0 [5]\n");
	script_end(&n);
}

Test(scheduler_shares, what_becomes_its_own_again_makes_others_leave_first)
{
	start_models(45, 3);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	share(0, 7, 16);
	share(1, 7, 16);
	script_serve(&n, 3, 2);
	script_arrive(&n, 4, 1);
	script_forget(&n);
	share(1, 7, 0);
	cr_assert_eq(script_books(&n, 0).over_bytes, 15 * GB);
	expect(&n, "offload t4 weights f0 gpu0\n");
	script_evicted(&n, 4);
	cr_assert_eq(script_books(&n, 0).over_bytes, 0, "now it may have its own");
	script_end(&n);
}

Test(scheduler_shares, what_is_on_its_way_counts_in_full_until_it_is_there)
{
	start_models(45, 3);
	script_serve(&n, 1, 0);
	share(0, 7, 16);
	script_arrive(&n, 2, 1);
	share(1, 7, 16);
	cr_assert_float_eq(used_gb(), 40, 1e-9);
	script_copied(&n, 2);
	cr_assert_float_eq(used_gb(), 24, 1e-9);
	share(2, 7, 16); /* it is not there */
	cr_assert_float_eq(used_gb(), 24, 1e-9);
	script_end(&n);
}

Test(scheduler_shares, a_lost_gpu_has_nothing_in_common)
{
	start_models(45, 2);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	share(0, 7, 16);
	share(1, 7, 16);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	cr_assert_float_eq(shared_gb(), 0, 1e-9);
	script_serve(&n, 3, 0);
	script_serve(&n, 4, 1);
	cr_assert_float_eq(used_gb(), 40, 1e-9);
	script_end(&n);
}

/* What the driver says is in use has what is shared once; what is beyond that is others'. */
Test(scheduler_shares, reports_of_memory_are_compared_with_what_is_there)
{
	start_models(60, 2);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	share(0, 7, 16);
	share(1, 7, 16);
	n.now += 10 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 30);
	cr_assert_eq(script_books(&n, 0).foreign_bytes, 6 * GB);
	script_end(&n);
}

Test(scheduler_shares, backbones_share_too)
{
	script_start(&n, &(struct setup){.gb = 80, .slots = 8});
	for (int i = 0; i < 2; i++) {
		struct medusa_sched_function f = script_model(1);
		f.backbone = script_backbone(&n, 20);
		script_add(&n, f);
		script_serve(&n, (uint64_t)i + 1, (uint32_t)i);
		script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_SHARED,
							    .artifact = MEDUSA_SCHED_CLASS_BACKBONE,
							    .backbone = (uint32_t)i,
							    .share = 7,
							    .bytes = 16 * GB});
	}
	cr_assert_float_eq(used_gb(), 26, 1e-9);
	script_end(&n);
}

static void assert_refused(struct medusa_sched_event event, const char *part)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	event.type = MEDUSA_SCHED_EVENT_SHARED;
	event.size = sizeof(event);
	event.now = n.now;
	cr_assert_eq(medusa_sched_step(n.sched, &event, &actions, &count), MEDUSA_SCHED_ERR_INVALID, "%s", part);
	cr_assert(strstr(medusa_sched_error(n.sched), part), "%s: %s", part, medusa_sched_error(n.sched));
}

Test(scheduler_shares, should_fail)
{
	start_models(60, 2);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	share(0, 7, 16);
	struct medusa_sched_event e = {
	    .artifact = MEDUSA_SCHED_CLASS_WEIGHTS, .function = 1, .share = 7, .bytes = 15 * GB};
	assert_refused(e, "others have 16000000000 bytes of share 7");
	e.share = 8;
	e.bytes = 21 * GB;
	assert_refused(e, "would share 21000000000 bytes on gpu 0, and has 20000000000");
	e.function = 2;
	assert_refused(e, "only 2 functions are registered");
	e.artifact = MEDUSA_SCHED_CLASS_CONTEXT;
	assert_refused(e, "weights and backbones alone");
	e.gpu = 1;
	assert_refused(e, "has only 1 GPUs");
	cr_assert_float_eq(shared_gb(), 0, 1e-9);
	script_end(&n);
}

/* ---- random sequences, and an account of what is really there --------------------------------------------------- */

#define MODELS 6
#define PIECES 3
#define PENDING 64

static const uint64_t piece_bytes[PIECES] = {3 * GB, 5 * GB, 9 * GB};

struct model {
	bool there;             /* it has device memory */
	bool merged[PIECES];    /* this part of it is the common one */
	bool asked[PIECES];     /* it has said that this part is to be its own */
	uint64_t leaves, comes; /* transfers; 0: none */
};

struct drawn {
	struct medusa_sched *sched;
	struct model models[MODELS];
	uint64_t now, timer, limit, next, runs[PENDING];
	uint32_t running, crowded;
	uint64_t said; /* of all actions */
};

static struct drawn w;

/* What the device has in use. */
static uint64_t really(void)
{
	uint64_t bytes = 0;
	for (int p = 0; p < PIECES; p++) {
		bool any = false;
		for (int m = 0; m < MODELS; m++)
			any |= w.models[m].there && w.models[m].merged[p];
		bytes += any ? piece_bytes[p] : 0;
	}
	for (int m = 0; m < MODELS; m++) {
		bytes += w.models[m].there ? 20 * GB : 0;
		for (int p = 0; p < PIECES; p++)
			bytes -= w.models[m].there && w.models[m].merged[p] ? piece_bytes[p] : 0;
	}
	return bytes;
}

static void check_device(const char *when)
{
	uint64_t bytes = really();
	struct medusa_sched_gpu_state g = {.size = sizeof(g)};
	medusa_sched_gpu_get(w.sched, 0, &g);
	cr_assert_leq(bytes, w.limit, "%s: %llu bytes are there, of %llu", when, (unsigned long long)bytes,
		      (unsigned long long)w.limit);
	cr_assert_leq(bytes, g.artifact_bytes - g.shared_bytes, "%s: %llu bytes are there, %llu in the books", when,
		      (unsigned long long)bytes, (unsigned long long)(g.artifact_bytes - g.shared_bytes));
	w.crowded += g.artifact_bytes > w.limit;
}

static void goes(struct model *m)
{
	m->there = false;
	memset(m->merged, 0, sizeof(m->merged));
	memset(m->asked, 0, sizeof(m->asked));
}

static void act(const struct medusa_sched_action *a)
{
	struct model *m = a->function < MODELS ? &w.models[a->function] : NULL;
	w.said = (w.said ^ a->type ^ a->transfer << 8 ^ (uint64_t)a->function << 48 ^ a->at) * 0x100000001b3ull;
	switch (a->type) {
	case MEDUSA_SCHED_ACTION_SWAP_IN:
		cr_assert(!m->there && !m->comes && !m->leaves);
		m->comes = a->transfer;
		m->there = true; /* in full from the beginning */
		break;
	case MEDUSA_SCHED_ACTION_EVICT:
	case MEDUSA_SCHED_ACTION_OFFLOAD:
		if (a->gpu != NOBODY)
			m->leaves = a->transfer;
		break;
	case MEDUSA_SCHED_ACTION_RUN:
		for (uint32_t i = 0; i < a->request_count; i++)
			w.runs[w.running++ % PENDING] = a->requests[i];
		break;
	case MEDUSA_SCHED_ACTION_SET_TIMER:
		w.timer = a->at;
		break;
	default:
		break;
	}
}

static void tell(struct medusa_sched_event e)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	e.size = sizeof(e);
	e.now = ++w.now;
	cr_assert_eq(medusa_sched_step(w.sched, &e, &actions, &count), 0, "%s", medusa_sched_error(w.sched));
	for (size_t i = 0; i < count; i++)
		act(actions[i]);
	cr_assert_eq(medusa_sched_audit(w.sched), 0, "%s", medusa_sched_error(w.sched));
	check_device(medusa_sched_event_name(e.type));
}

static void tell_share(uint32_t model, uint32_t piece, bool has)
{
	tell((struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_SHARED,
					 .artifact = MEDUSA_SCHED_CLASS_WEIGHTS,
					 .function = model,
					 .share = piece,
					 .bytes = has ? piece_bytes[piece] : 0});
}

static bool is_over(void)
{
	struct medusa_sched_gpu_state g = {.size = sizeof(g)};
	medusa_sched_gpu_get(w.sched, 0, &g);
	return g.over_bytes != 0;
}

static void end_transfer(uint64_t *transfer, enum medusa_sched_event_type type)
{
	uint64_t ended = *transfer;
	*transfer = 0;
	tell((struct medusa_sched_event){.type = type, .transfer = ended});
}

/* Who is killed has nothing at once; the scheduler hears of it later, and has the rest of it taken away. */
static void kill_model(uint32_t index)
{
	struct model *m = &w.models[index];
	if (!m->there || m->comes)
		return;
	goes(m);
	check_device("a kill");
	tell((struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED, .function = index});
}

static void ring(void)
{
	w.now = w.timer > w.now ? w.timer : w.now;
	tell((struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
}

static void move(uint32_t index, uint32_t piece)
{
	struct model *m = &w.models[index];
	if (m->comes && draw(2)) {
		end_transfer(&m->comes, MEDUSA_SCHED_EVENT_TRANSFER_DONE);
	} else if (m->leaves && draw(2)) { /* the memory goes before it is said */
		goes(m);
		check_device("a leave");
		end_transfer(&m->leaves, MEDUSA_SCHED_EVENT_EVICTED);
	} else if (m->asked[piece]) { /* it waits for its room */
		if (is_over())
			return;
		m->merged[piece] = m->asked[piece] = false;
		check_device("memory of its own");
	} else if (m->merged[piece] && draw(4) == 0) {
		m->asked[piece] = true;
		tell_share(index, piece, false);
	} else if (!m->merged[piece] && m->there && !m->leaves && draw(2)) {
		m->merged[piece] = true; /* before it is said */
		check_device("a merge");
		tell_share(index, piece, true);
	}
}

static void play(uint64_t seed)
{
	w = (struct drawn){.limit = (45 + 5 * (seed % 5)) * GB, .next = 1};
	random_state = seed * 0x9e3779b97f4a7c15ull + 1;
	struct medusa_sched_gpu gpu = {.size = sizeof(gpu), .memory_bytes = w.limit, .slots = 8};
	struct medusa_sched_node node = {.size = sizeof(node), .gpus = &gpu, .gpu_count = 1, .host_bytes_per_s = 10e9};
	struct medusa_sched_options o = {
	    .size = sizeof(o), .seed = seed, .preloading = "none", .eviction = any_policy(MEDUSA_SCHED_KIND_EVICTION)};
	cr_assert_eq(medusa_sched_create(&node, &o, &w.sched), 0, "%s", medusa_sched_error(NULL));
	for (uint32_t i = 0; i < MODELS; i++) {
		uint32_t index;
		struct medusa_sched_function f = script_model(20);
		f.evict_ns = SECOND;
		f.max_batch = 4;
		medusa_sched_add_function(w.sched, &f, &index);
	}
	for (int i = 0; i < 4000; i++) {
		uint32_t m = (uint32_t)draw(MODELS);
		if (draw(8) == 0)
			tell((struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = w.next++, .function = m});
		else if (draw(6) == 0 && w.running)
			tell((struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_DONE,
							 .request = w.runs[--w.running % PENDING]});
		else if (draw(200) == 0)
			kill_model(m);
		else if (draw(20) == 0 && w.timer)
			ring();
		else
			move(m, (uint32_t)draw(PIECES));
	}
	medusa_sched_destroy(w.sched);
}

Test(scheduler_shares, what_is_there_never_exceeds_the_gpu, .timeout = 600)
{
	const char *other = getenv("MEDUSA_SEED");
	uint64_t first = other ? strtoull(other, NULL, 10) : 1;
	uint32_t crowded = 0;
	for (uint64_t seed = first; seed < first + 40; seed++) {
		play(seed);
		crowded += w.crowded;
	}
	uint64_t said = w.said;
	play(first + 39);
	cr_assert_eq(said, w.said, "the same events have brought other actions");
	cr_assert_gt(crowded, 10000, "in %u moments alone models had more than the GPU by their own count", crowded);
}
