/* SPDX-License-Identifier: Apache-2.0 */
/* Pacing: a simulated engine that replays graphs is disturbed rarely, and everything is restored all the same. */
#include "restore/pace.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/cpu_clock.h"

#define MS 1000000ull
#define US 1000ull

/* ---- single decisions ---- */

static const struct md_pace_view replaying = {.launches = 1000, .ended_ns = 100 * MS, .gap_ns = 10 * MS};

static struct md_pace_answer ask(struct md_pace_view engine, enum md_pace_step step, uint64_t units, uint64_t now)
{
	struct md_pace pace;
	md_pace_init(&pace);
	return md_pace_decide(&pace, &engine, step, units, false, now);
}

Test(pace, full_speed_without_launches)
{
	struct md_pace_view never = {0}, idle = replaying;
	cr_assert_eq(ask(never, MD_PACE_INSTANTIATE, 1u << 30, 1).units, 1u << 30, "nothing was launched yet");
	cr_assert_eq(ask(idle, MD_PACE_INSTANTIATE, 1u << 30, 151 * MS).units, 1u << 30, "no launch for 51 ms");
	cr_assert_eq(ask(idle, MD_PACE_INSTANTIATE, 1u << 30, 149 * MS).units, 0, "no launch for 49 ms");
}

Test(pace, slow_replays_are_not_taken_for_idleness)
{
	struct md_pace_view slow = replaying;
	slow.gap_ns = 60 * MS;
	cr_assert_eq(ask(slow, MD_PACE_INSTANTIATE, 10000, 155 * MS).units, 0, "5 ms are left, 40 are needed");
	cr_assert_eq(ask(slow, MD_PACE_INSTANTIATE, 10000, 221 * MS).units, 10000, "two gaps without a launch");
}

Test(pace, never_while_a_launch_is_in_the_driver)
{
	struct md_pace_view inside = replaying;
	inside.in_launch = true;
	cr_assert_eq(ask(inside, MD_PACE_NODES, 1, 100 * MS).units, 0, "the launch has not returned");
	inside.ended_ns = 0;
	cr_assert_eq(ask(inside, MD_PACE_NODES, 1, 100 * MS).units, 0, "the first launch has not returned");
}

Test(pace, what_is_awaited_goes_at_once)
{
	struct md_pace pace;
	struct md_pace_view inside = replaying;
	inside.in_launch = true;
	md_pace_init(&pace);
	pace.next_launch = 5000;
	cr_assert_eq(md_pace_decide(&pace, &inside, MD_PACE_INSTANTIATE, 700, true, 100 * MS).units, 700, "awaited");
}

Test(pace, a_step_begins_only_if_it_fits)
{
	struct md_pace_answer answer = ask(replaying, MD_PACE_INSTANTIATE, 1000, 101 * MS);
	cr_assert(answer.units == 1000 && answer.shadow, "4 ms of the 10 that a gap has");
	answer = ask(replaying, MD_PACE_INSTANTIATE, 1000, 106 * MS);
	cr_assert(!answer.units && answer.wait_ns <= 4 * MS, "not into the next launch; asked again before it: %llu",
		  (unsigned long long)answer.wait_ns);
	answer = ask(replaying, MD_PACE_NODES, 100000, 106 * MS);
	cr_assert(answer.units > 1000 && answer.units < 7000, "nodes come in pieces: %llu",
		  (unsigned long long)answer.units);
}

Test(pace, an_unknown_gap_holds_nothing_for_sure)
{
	struct md_pace_view first = {.launches = 1, .ended_ns = 100 * MS};
	cr_assert_eq(ask(first, MD_PACE_NODES, 1, 100 * MS).units, 0, "one launch, and no gap known");
}

Test(pace, costs_are_learned_up_at_once_and_down_by_and_by)
{
	struct md_pace pace;
	md_pace_init(&pace);
	md_pace_learn(&pace, MD_PACE_UPLOAD, 10, 50000, 0, 0, false);
	cr_assert_eq(pace.unit_ns8[MD_PACE_UPLOAD] >> 8, 5000, "slower");
	md_pace_learn(&pace, MD_PACE_UPLOAD, 10, 10000, 0, 0, false);
	cr_assert_eq(pace.unit_ns8[MD_PACE_UPLOAD] >> 8, 4500, "an eighth of the way");
}

/* ---- a whole restore beside an engine ---- */

struct world {
	uint64_t replay_ns, host_ns;     /* the device's time, and what the engine does between replays */
	uint64_t jitter_ns, launch_ns;   /* of the engine's part; of a launch call */
	uint64_t unit_ns[MD_PACE_STEPS]; /* what steps really take */
	uint32_t graphs, nodes;
	/* outcome */
	uint64_t launches, felt, worst_ns, end_ns;
};

struct job {
	uint32_t graph, done; /* nodes added */
	enum md_pace_step step;
};

static uint64_t noise(uint64_t *state, uint64_t below)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return below ? (*state >> 33) % below : 0;
}

/* One more piece of the job is done; false when all graphs are. */
static bool advance(struct job *job, const struct world *w, uint64_t units)
{
	if (job->step == MD_PACE_NODES && (job->done += (uint32_t)units) < w->nodes)
		return true;
	job->done = 0;
	job->step = job->step == MD_PACE_UPLOAD ? MD_PACE_NODES : job->step + 1;
	job->graph += job->step == MD_PACE_NODES;
	return job->graph < w->graphs;
}

/* The engine launches, waits for the device, works, launches; a launch waits for the step that holds the driver. */
static void simulate(struct world *w, uint64_t give_up_launches)
{
	struct md_pace pace;
	struct job job = {.step = MD_PACE_NODES};
	struct md_pace_view engine = {0};
	uint64_t gaps[MD_PACE_GAPS] = {0}, state = 1, now = MS, launch_at = now, asked_at = now + 1;
	bool work = true;
	md_pace_init(&pace);
	while (work && engine.launches < give_up_launches) {
		if (asked_at > launch_at) { /* the launch comes first */
			uint64_t begun = launch_at > now ? launch_at : now;
			w->felt += begun > launch_at;
			w->worst_ns = begun - launch_at > w->worst_ns ? begun - launch_at : w->worst_ns;
			if (engine.ended_ns)
				gaps[engine.launches % MD_PACE_GAPS] = launch_at - engine.ended_ns;
			engine.launches++;
			engine.ended_ns = begun + w->launch_ns;
			now = engine.ended_ns;
			launch_at = now + w->replay_ns + w->host_ns + noise(&state, w->jitter_ns);
			asked_at = asked_at > now ? asked_at : now;
			engine.gap_ns = 0;
			for (int i = 0; i < MD_PACE_GAPS; i++)
				if (gaps[i] && (!engine.gap_ns || gaps[i] < engine.gap_ns))
					engine.gap_ns = gaps[i];
			continue;
		}
		now = asked_at;
		uint64_t left = job.step == MD_PACE_NODES ? w->nodes - job.done : w->nodes;
		struct md_pace_answer answer = md_pace_decide(&pace, &engine, job.step, left, false, now);
		if (!answer.units) {
			asked_at = now + answer.wait_ns;
			continue;
		}
		uint64_t took = answer.units * w->unit_ns[job.step];
		took += noise(&state, took / 4);
		now += took;
		/* a launch that came meanwhile has begun, and waits */
		md_pace_learn(&pace, job.step, answer.units, took, engine.launches, engine.launches + (launch_at < now),
			      false);
		work = advance(&job, w, answer.units);
		asked_at = now;
	}
	w->launches = engine.launches;
	w->end_ns = now;
	cr_assert(!work, "not restored after %llu launches: graph %u, step %d", (unsigned long long)engine.launches,
		  job.graph, (int)job.step);
}

static const struct world h200 = {
    .launch_ns = 40 * US,
    .jitter_ns = 50 * US,
    .host_ns = 100 * US,
    .unit_ns = {[MD_PACE_NODES] = 450, [MD_PACE_EDGES] = 60, [MD_PACE_INSTANTIATE] = 3500, [MD_PACE_UPLOAD] = 800},
    .graphs = 35,
    .nodes = 713,
};

Test(pace, long_replays_hide_every_step)
{
	struct world w = h200;
	w.replay_ns = 3800 * US;
	simulate(&w, 1000);
	cr_assert_eq(w.felt, 0, "%llu of %llu launches were felt", (unsigned long long)w.felt,
		     (unsigned long long)w.launches);
	cr_assert(w.launches <= 3 * 35 + 20, "two or three steps a gap: %llu launches", (unsigned long long)w.launches);
}

Test(pace, short_replays_are_disturbed_once_in_two_hundred)
{
	struct world w = h200;
	w.replay_ns = 1400 * US;
	w.nodes = 438;
	simulate(&w, 20000);
	cr_assert(w.felt <= w.launches / MD_PACE_LAUNCHES + 1, "%llu of %llu launches were felt",
		  (unsigned long long)w.felt, (unsigned long long)w.launches);
	cr_assert(w.worst_ns <= 1000 * US, "none waits for long: %llu ns", (unsigned long long)w.worst_ns);
}

Test(pace, very_short_replays_too)
{
	struct world w = h200;
	w.replay_ns = 300 * US;
	simulate(&w, 40000);
	cr_assert(w.felt <= w.launches / MD_PACE_LAUNCHES + 1, "%llu of %llu launches were felt",
		  (unsigned long long)w.felt, (unsigned long long)w.launches);
}

Test(pace, a_machine_that_is_slower_than_thought)
{
	struct world w = h200;
	w.replay_ns = 3800 * US;
	for (int i = 0; i < MD_PACE_STEPS; i++)
		w.unit_ns[i] *= 6;
	simulate(&w, 40000);
	cr_assert(w.felt <= w.launches / MD_PACE_LAUNCHES + 1, "%llu of %llu launches were felt",
		  (unsigned long long)w.felt, (unsigned long long)w.launches);
}

Test(pace, replays_of_many_lengths)
{
	struct world w = h200;
	w.replay_ns = 1000 * US;
	w.jitter_ns = 8000 * US;
	simulate(&w, 40000);
	cr_assert(w.felt <= w.launches / MD_PACE_LAUNCHES + 1, "%llu of %llu launches were felt",
		  (unsigned long long)w.felt, (unsigned long long)w.launches);
}

/* ---- the gate and the hook ---- */

Test(pace, one_step_at_a_time_in_a_shadow)
{
	struct md_pace_gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
	struct md_pace_turn first, second;
	md_pace_init(&gate.pace);
	atomic_store(&md_pace_engine.watched, true);
	md_pace_launch_begins(&md_pace_engine);
	md_pace_launch_ends(&md_pace_engine);
	for (int i = 0; i < MD_PACE_GAPS; i++)
		atomic_store(&md_pace_engine.gaps[i], 1000 * MS);
	cr_assert(md_pace_begin(&gate, MD_PACE_UPLOAD, 100, false, &first), "it fits");
	cr_assert(!md_pace_begin(&gate, MD_PACE_UPLOAD, 100, false, &second), "but not beside another");
	cr_assert(md_pace_begin(&gate, MD_PACE_UPLOAD, 100, true, &second), "unless somebody waits");
	md_pace_end(&gate, &second);
	cr_assert(!md_pace_begin(&gate, MD_PACE_UPLOAD, 100, false, &second), "the first one is still there");
	md_pace_launch_begins(&md_pace_engine);
	md_pace_launch_ends(&md_pace_engine);
	md_pace_end(&gate, &first);
	cr_assert(!md_pace_begin(&gate, MD_PACE_UPLOAD, 100, false, &second), "it was felt");
	cr_assert_eq(gate.pace.next_launch, 2 + MD_PACE_LAUNCHES, "for so many launches");
}

Test(pace, the_hook_counts_gaps)
{
	struct md_pace_engine engine = {.watched = true};
	md_pace_launch_begins(&engine);
	cr_assert(engine.begun == 1 && engine.ended == 0, "inside");
	md_pace_launch_ends(&engine);
	cr_assert(engine.ended == 1 && engine.ended_ns && !engine.gaps[0], "no gap before the first");
	uint64_t ended = engine.ended_ns;
	md_pace_launch_begins(&engine);
	md_pace_launch_ends(&engine);
	cr_assert(engine.gaps[1] > 0 && engine.gaps[1] <= md_clock_ns() - ended, "one gap: %llu",
		  (unsigned long long)engine.gaps[1]);
}

#ifndef MD_SANITIZED
Test(pace, the_hook_is_cheap)
{
	struct md_pace_engine engine = {.watched = true};
	enum { LAUNCHES = 1000000 };
	uint64_t best = UINT64_MAX;
	for (int round = 0; round < 5; round++) {
		uint64_t start = cpu_ns();
		for (int i = 0; i < LAUNCHES; i++) {
			md_pace_launch_begins(&engine);
			md_pace_launch_ends(&engine);
		}
		uint64_t took = cpu_ns() - start;
		best = took < best ? took : best;
	}
	cr_log_info("%.1f ns a launch", (double)best / LAUNCHES);
	cr_assert(best / LAUNCHES < 200, "%llu ns a launch", (unsigned long long)(best / LAUNCHES));
}
#endif
