/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which step of a restore may run beside an engine that replays graphs, and learns what steps take. */
#include "restore/pace.h"

#define POLL_NS 20000u          /* how late after a launch a step begins at worst */
#define WAIT_MAX_NS 5000000u    /* a graph that is awaited, and the end of a restore, are noticed at once */
#define MARGIN_NS 30000u        /* left of a gap, and an eighth of it */
#define PIECE_MIN 16u           /* nodes; a smaller piece costs more than it saves */
#define SHADOW_BEGIN_NS 200000u /* a step that no gap holds may begin so long after a launch */

/* Measured on one NVIDIA H200; they hold until this machine's are learned. */
static const uint32_t first_unit_ns[MD_PACE_STEPS] = {
    [MD_PACE_IMAGE] = 2700,       [MD_PACE_FUNCTION] = 350000, [MD_PACE_NODES] = 450, [MD_PACE_EDGES] = 100,
    [MD_PACE_INSTANTIATE] = 4000, [MD_PACE_UPLOAD] = 800,      [MD_PACE_DROP] = 200,
};

void md_pace_init(struct md_pace *pace)
{
	*pace = (struct md_pace){0};
	for (int i = 0; i < MD_PACE_STEPS; i++)
		pace->unit_ns8[i] = (uint64_t)first_unit_ns[i] << 8;
}

static bool is_idle(const struct md_pace_view *engine, uint64_t now_ns)
{
	if (engine->in_launch)
		return false;
	uint64_t since = now_ns > engine->ended_ns ? now_ns - engine->ended_ns : 0;
	return !engine->ended_ns || (since > MD_PACE_IDLE_NS && since > 2 * engine->gap_ns);
}

static struct md_pace_answer later(uint64_t ns)
{
	ns = ns < POLL_NS ? POLL_NS : ns;
	return (struct md_pace_answer){.wait_ns = ns > WAIT_MAX_NS ? WAIT_MAX_NS : ns};
}

/* Asks again somewhat before the next launch is expected to return, and polls from there. */
static struct md_pace_answer after_next_launch(const struct md_pace_view *engine, uint64_t since)
{
	return later(engine->gap_ns > since ? (engine->gap_ns - since) / 4 * 3 : 0);
}

static uint64_t fitting(const struct md_pace *pace, enum md_pace_step step, uint64_t ns)
{
	return pace->unit_ns8[step] ? (ns << 8) / pace->unit_ns8[step] : UINT64_MAX;
}

struct md_pace_answer md_pace_decide(const struct md_pace *pace, const struct md_pace_view *engine,
				     enum md_pace_step step, uint64_t units, bool awaited, uint64_t now_ns)
{
	if (awaited || is_idle(engine, now_ns))
		return (struct md_pace_answer){.units = units};
	if (engine->in_launch || !engine->gap_ns)
		return later(POLL_NS);
	if (engine->launches < pace->next_launch)
		return later((pace->next_launch - engine->launches) * engine->gap_ns);

	uint64_t since = now_ns > engine->ended_ns ? now_ns - engine->ended_ns : 0;
	uint64_t margin = MARGIN_NS + engine->gap_ns / 8;
	uint64_t window = engine->gap_ns > margin ? engine->gap_ns - margin : 0;
	uint64_t fits_now = fitting(pace, step, window > since ? window - since : 0);
	uint64_t least = step == MD_PACE_NODES && units > PIECE_MIN ? PIECE_MIN : units;
	if (fits_now >= least)
		return (struct md_pace_answer){.units = fits_now < units ? fits_now : units, .shadow = true};
	if (fitting(pace, step, window) >= least)
		return after_next_launch(engine, since);
	/* The step is longer than any gap: the earlier it begins, the less it is felt. */
	if (since <= SHADOW_BEGIN_NS)
		return (struct md_pace_answer){.units = least, .shadow = true};
	return after_next_launch(engine, since);
}

void md_pace_learn(struct md_pace *pace, enum md_pace_step step, uint64_t units, uint64_t ns, uint64_t launches_before,
		   uint64_t launches_after, bool awaited)
{
	if (launches_after != launches_before && !awaited)
		pace->next_launch = launches_after + MD_PACE_LAUNCHES;
	if (!units)
		return;
	/* A slower time is believed at once, a faster one by and by. */
	uint64_t now = (ns << 8) / units, *known = &pace->unit_ns8[step];
	*known = now > *known ? now : *known - (*known - now) / 8;
}

/* ---- with threads and the clock ---- */

struct md_pace_engine md_pace_engine;

/*
 * `ended` is read before `begun`: a launch in between can make it
 * look as if one were in progress, but never the other way round.
 */
static struct md_pace_view look(struct md_pace_engine *engine)
{
	struct md_pace_view view = {0};
	uint64_t ended = atomic_load_explicit(&engine->ended, memory_order_acquire);
	view.ended_ns = atomic_load_explicit(&engine->ended_ns, memory_order_relaxed);
	for (int i = 0; i < MD_PACE_GAPS; i++) {
		uint64_t gap = atomic_load_explicit(&engine->gaps[i], memory_order_relaxed);
		if (gap && (!view.gap_ns || gap < view.gap_ns))
			view.gap_ns = gap;
	}
	view.launches = atomic_load_explicit(&engine->begun, memory_order_acquire);
	view.in_launch = view.launches != ended;
	return view;
}

bool md_pace_begin(struct md_pace_gate *gate, enum md_pace_step step, uint64_t units, bool awaited,
		   struct md_pace_turn *turn)
{
	pthread_mutex_lock(&gate->lock);
	struct md_pace_view engine = look(&md_pace_engine);
	uint64_t now = md_clock_ns();
	struct md_pace_answer answer = md_pace_decide(&gate->pace, &engine, step, units, awaited, now);
	if (answer.shadow && gate->busy)
		answer = later(POLL_NS);
	gate->busy |= answer.shadow;
	pthread_mutex_unlock(&gate->lock);
	*turn = (struct md_pace_turn){.step = step,
				      .units = answer.units,
				      .wait_ns = answer.wait_ns,
				      .start_ns = now,
				      .launches = engine.launches,
				      .shadow = answer.shadow,
				      .awaited = awaited};
	return answer.units > 0;
}

void md_pace_end(struct md_pace_gate *gate, const struct md_pace_turn *turn)
{
	uint64_t ns = md_clock_ns() - turn->start_ns;
	pthread_mutex_lock(&gate->lock);
	md_pace_learn(&gate->pace, turn->step, turn->units, ns, turn->launches,
		      atomic_load_explicit(&md_pace_engine.begun, memory_order_relaxed), turn->awaited);
	if (turn->shadow)
		gate->busy = false;
	pthread_mutex_unlock(&gate->lock);
}

uint64_t md_pace_launches(void)
{
	return atomic_load_explicit(&md_pace_engine.begun, memory_order_relaxed);
}

bool md_pace_is_free(bool awaited)
{
	struct md_pace_view engine = look(&md_pace_engine);
	return awaited || is_idle(&engine, md_clock_ns());
}

void md_pace_learned(struct md_pace_gate *gate, enum md_pace_step step, uint64_t units, uint64_t ns, uint64_t launches,
		     bool awaited)
{
	pthread_mutex_lock(&gate->lock);
	md_pace_learn(&gate->pace, step, units, ns, launches, md_pace_launches(), awaited);
	pthread_mutex_unlock(&gate->lock);
}
