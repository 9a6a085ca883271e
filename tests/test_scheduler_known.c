/* SPDX-License-Identifier: Apache-2.0 */
/* Failures that other schedulers are known for, by name, do not happen in this one. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

/* Ollama 17408: what was to go is called again by many at once, while it goes. Whoever asked first is served first. */
Test(scheduler_known, ollama_17408_eviction_target_resurrected_by_concurrent_requests)
{
	for (int busy = 0; busy < 2; busy++) {
		script_start(&n, &(struct setup){.gb = 40, .slots = 2, .options.eviction = "swapserve"});
		struct medusa_sched_function f = script_model(30);
		f.evict_ns = SECOND;
		f.max_batch = 1;
		script_add(&n, f);
		script_add(&n, f);
		script_serve(&n, 1, 0);
		if (busy)
			script_arrive(&n, 2, 0);
		script_forget(&n);
		n.now += MS;
		script_arrive(&n, 3, 1);
		for (uint64_t i = 10; i < 30; i++)
			script_arrive(&n, i, 0);
		if (busy) {
			expect(&n, "");
			script_done(&n, 2);
		}
		expect(&n, "evict t2 weights f0 gpu0\n");
		script_evicted(&n, 2);
		if (busy)
			expect(&n, "swap t3 weights f1 gpu0 host\nrun b3 f1 gpu0 [3]\n");
		else
			expect(&n, "swap t3 weights f1 gpu0 host\nrun b2 f1 gpu0 [3]\n");
		script_copied(&n, 3);
		script_done(&n, 3);
		expect(&n, "evict t4 weights f1 gpu0\n");
		script_evicted(&n, 4);
		cr_assert_eq(script_function(&n, 0).running, 1, "those who came meanwhile are not served");
		script_end(&n);
	}
}

/* Ollama 18282: a model that can never fit must not push out the others over and over. */
Test(scheduler_known, ollama_18282_what_can_never_fit_evicts_nobody)
{
	script_start(&n, &(struct setup){.options.eviction = "medusa"});
	script_add(&n, script_model(40));
	script_add(&n, script_model(60));
	script_serve(&n, 1, 0);
	script_forget(&n);
	script_arrive_kv(&n, 2, 1, 30);
	expect(&n, "reject 2 never fits\n");
	/* The request would have fitted before the limit fell. */
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 1);
	script_forget(&n);
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 50);
	expect(&n, "reject 4 never fits\n");
	script_arrive(&n, 5, 1);
	expect(&n, "reject 5 never fits\n");
	script_done(&n, 3);
	script_serve(&n, 6, 0);
	expect(&n, "run b3 f0 gpu0 [6]\n");
	cr_assert_eq(script_stats(&n).evictions, 0);
	script_end(&n);
}

/* llama-swap 946: the idle unload and a request for the same model meet, in either order. */
Test(scheduler_known, llama_swap_946_unload_races_a_request)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(30);
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_serve(&n, 1, 0);
	/* The artifact leaves because its memory is needed elsewhere; a request comes meanwhile. */
	n.now += 10 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 85);
	script_forget(&n);
	script_arrive(&n, 2, 0);
	expect(&n, "");
	n.now += SECOND;
	script_evicted(&n, 2);
	n.now += 10 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 1);
	expect(&n, "swap t3 weights f0 gpu0 host\nrun b2 f0 gpu0 [2]\n");
	/* A function that is unregistered in the middle of a request: that one ends, later ones are refused. */
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE});
	script_arrive(&n, 3, 0);
	expect(&n, "reject 3 unregistered\n");
	script_copied(&n, 3);
	script_done(&n, 2);
	expect(&n, "offload t4 weights f0 gpu0\noffload weights f0 host\n");
	script_evicted(&n, 4);
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 0);
	script_end(&n);
}

/* llama-swap 612: A B A A C ... on memory for one. Swaps stay few, and so does what anybody waits. */
Test(scheduler_known, llama_swap_612_thrash_and_waiting_are_bounded)
{
	static const char *const queueings[] = {"medusa", "fifo"};
	uint32_t swaps[2];
	for (int q = 0; q < 2; q++) {
		script_start(&n, &(struct setup){.gb = 40,
						 .options = {.queueing = queueings[q],
							     .placement = "medusa",
							     .eviction = "medusa",
							     .batching = "medusa"}});
		struct medusa_sched_function f = script_model(30);
		f.max_batch = 4;
		for (int i = 0; i < 3; i++)
			script_add(&n, f);
		uint64_t longest = 0, arrived[60];
		for (uint64_t i = 0; i < 60; i++) {
			arrived[i] = n.now;
			script_arrive(&n, i, i % 5 == 1 ? 1 : i % 5 == 4 ? 2 : 0);
			n.now += 10 * MS;
		}
		while (script_stats(&n).served < 60) {
			struct md_batch *b = &n.sched->batches[0];
			for (uint32_t t = 0; t < n.transfer_count; t++)
				script_copied(&n, t + 1);
			cr_assert(b->live, "nothing runs, and %u wait", n.sched->waiting);
			n.now += 3 * SECOND;
			while (b->live && b->requests.count) {
				uint64_t id = n.sched->requests[b->requests.head].id, batch = b->id;
				longest = n.now - arrived[id] > longest ? n.now - arrived[id] : longest;
				script_done(&n, id);
				if (b->id != batch)
					break;
			}
		}
		swaps[q] = (uint32_t)script_stats(&n).swaps_host;
		cr_assert_leq(longest, 60 * SECOND, "%s: somebody waits %llu s", queueings[q],
			      (unsigned long long)(longest / SECOND));
		cr_assert_leq(swaps[q], 15, "%s: %u swaps for 15 batches' worth of requests", queueings[q], swaps[q]);
		script_end(&n);
	}
}

/* Torpor's code spins when every first-class item is locked: here nobody goes, and the one that wants it waits. */
Test(scheduler_known, torpor_spin_when_every_heavy_item_is_locked)
{
	script_start(&n, &(struct setup){.slots = 4, .options = {.eviction = "torpor", .placement = "torpor"}});
	for (int i = 0; i < 4; i++)
		script_add(&n, script_model(25));
	for (uint32_t i = 0; i < 3; i++)
		script_arrive(&n, i, i);
	script_forget(&n);
	script_arrive(&n, 3, 3);
	expect(&n, "");
	cr_assert_eq(script_books(&n, 0).waiting, 1);
	script_copied(&n, 1);
	script_done(&n, 0);
	expect(&n, "evict weights f0 gpu0\nswap t4 weights f3 gpu0 host\nrun b4 f3 gpu0 [3]\n");
	script_end(&n);
}

/* Ollama: drivers say 0.5 to 1.5 s late that memory is free, and as late that it is taken. */
Test(scheduler_known, ollama_lagging_memory_reports_are_not_believed)
{
	static const struct {
		const char *name;
		uint64_t after; /* since the last change, when it was measured; it comes in 100 ms later */
		double says, foreign;
	} cases[] = {
	    {"measured at once, still empty", 0, 5, 0},
	    {"1.4 s later", 1400 * MS, 5, 0},
	    {"1.5 s later, less than the books", 1500 * MS, 5, 0},
	    {"1.5 s later, more", 1500 * MS, 45, 15},
	    {"1.4 s later, more", 1400 * MS, 45, 0},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		script_start(&n, &(struct setup){0});
		script_add(&n, script_model(30));
		script_arrive(&n, 1, 0);
		script_copied(&n, 1);
		script_done(&n, 1);
		uint64_t measured = n.now + cases[i].after;
		n.now = measured + 100 * MS;
		script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_MEMORY_REPORT,
							    .bytes = (uint64_t)(cases[i].says * 1e9),
							    .as_of = measured});
		cr_assert_eq(script_books(&n, 0).foreign_bytes, (uint64_t)(cases[i].foreign * 1e9), "%s: %llu bytes",
			     cases[i].name, (unsigned long long)script_books(&n, 0).foreign_bytes);
		script_end(&n);
	}
}

/* The driver counts down while an eviction is under way: nothing can be told from that. */
Test(scheduler_known, reports_during_an_eviction_are_not_believed)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(50);
	f.evict_ns = 5 * SECOND;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 1, 0);
	n.now += 10 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 60);
	cr_assert_eq(script_books(&n, 0).foreign_bytes, 10 * GB);
	script_arrive(&n, 2, 1);
	n.now += 4 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 15);
	cr_assert_eq(script_books(&n, 0).foreign_bytes, 10 * GB, "others' memory is given away");
	script_end(&n);
}
