/* SPDX-License-Identifier: Apache-2.0 */
/* State that the passes of an analysis share: views of the captures, pairs of graphs, findings. */
#ifndef MD_ANALYZE_ANALYSIS_H
#define MD_ANALYZE_ANALYSIS_H

#include "analyze/analyze.h"
#include "analyze/findings.h"
#include "analyze/view.h"
#include "base/map.h"

/* One graph of the first capture and its counterpart in the second. */
struct md_pair {
	const char *label; /* borrowed from a trace, or from own_label */
	char own_label[32];
	uint32_t batch;
	const struct md_trace_graph *graph[2]; /* [1] is NULL when there is one capture, or no counterpart */
	char *why;                             /* owned; NULL, or why this graph is refused */
	struct md_findings findings;
	struct md_noises noises;
	struct md_doubts doubts;
	uint64_t constant_words, pointer_words, noise_words;
	struct md_target *outputs; /* of graph[0], by index; alloc is MD_NONE for one that was not given; owned */
	/* 0, or the number of the graphs that hand values on to each other in unbound memory */
	uint32_t group;
	struct md_part *parts; /* of the memory that is handed on; ascending by (alloc, offset); owned */
	uint32_t part_count;
};

struct md_part {
	uint32_t alloc; /* index into views[0].allocs */
	uint64_t offset, size;
	bool reads, writes;
};

/* One pair of graphs writes unbound memory that another pair reads. */
struct md_handing {
	uint32_t reader, writer; /* indices into pairs */
	unsigned capture;
	uint64_t address, size, sequence;
};

/* Permanent contents of private memory, or the value of a variable. */
struct md_held {
	uint32_t variable; /* index into variables, or MD_NONE */
	uint32_t alloc;    /* index into views[0].allocs */
	uint64_t offset, size;
	uint8_t *data;               /* owned; pointer bytes are zero */
	struct md_findings findings; /* node = MD_NONE, at = offset in data */
	bool kept;
	bool unread;   /* no replay read it; another input may */
	bool compared; /* the second capture saved the same bytes */
};

/* A variable of an image, whose modules may be several. */
struct md_variable {
	uint32_t image;   /* of the first capture */
	const char *name; /* borrowed from a trace */
	/* where the first capture has it; MD_NONE: the engine did not ask for its address */
	uint32_t alloc;
	bool written;                          /* by the engine, in one of the captures */
	const struct md_trace_value *value[2]; /* when graphs are replayed; NULL: unknown, or there were several */
	char *replayed;                        /* owned; NULL, or the graph of which a replay writes it */
	/* index into held of its value; MD_NONE: it keeps the value that the image has */
	uint32_t held;
};

/* A binding that contents may have been made of. */
struct md_constant {
	bool counts;     /* its role is constant, or the engine stated no role */
	const char *why; /* borrowed; why its hash is not known; NULL: the hash is known */
	bool varied;     /* the second capture had other bytes */
	struct md_hash hash;
};

struct md_analysis {
	struct md_analyze_options options;
	const struct md_trace *traces[2];
	struct md_view views[2];
	unsigned captures; /* 1 or 2 */
	struct md_pair *pairs;
	uint32_t pair_count;
	uint32_t *partner;       /* allocation of the first capture -> of the second, or MD_NONE */
	uint32_t *partner_back;  /* and the other way round */
	uint32_t *binding_match; /* the same for bindings, first -> second */
	uint32_t *before;        /* binding of the first capture -> one that must end where it begins, or MD_NONE */
	uint32_t *within;     /* binding of the first capture -> the first of those it shares memory with, or MD_NONE */
	uint32_t *group;      /* allocation of the first capture -> the one that stands for its neighbours */
	bool diverged;        /* the allocation sequences differ */
	char divergence[256]; /* where they do first */
	struct md_map deltas; /* every distance by which some matched allocation moved */
	uint8_t **param_kinds;        /* per kernel of the first capture: md_param_kind of each, or NULL so far */
	uint32_t *kernel_identity[2]; /* per kernel: its first equal in the first capture, or MD_NONE */
	struct md_handing *handings;
	uint32_t handing_count;
	struct md_held *held;
	uint32_t held_count;
	struct md_variable *variables;
	uint32_t variable_count;
	uint32_t *variable_of;         /* allocation of the first capture -> the variable that it is, or MD_NONE */
	struct md_constant *constants; /* by binding of the first capture */
	char **broken;                 /* per group: NULL, or why what it holds is unprovable; owned */
	uint64_t fixed_words;          /* pointers because their allocation did not move */
	uint64_t untouched_bytes;      /* of private memory at addresses of graphs that no replay read or wrote */
	uint32_t untouched_places;
	uint64_t scratch_addresses; /* given to the engine's kernels, in memory that only graphs use, as it states */
	uint64_t lookalike_words;   /* constants that look like addresses */
	uint32_t *alloc_slot;       /* allocation of the first capture -> artifact allocation */
	uint64_t *alloc_shift;      /* where the allocation starts in that artifact allocation */
	uint32_t *binding_slot;     /* binding of the first capture -> artifact allocation */
	uint32_t *kernel_slot;      /* kernel of the first capture -> artifact kernel */
	struct md_artifact *out;
};

/* Passes, in the order of pipeline.c; each reads what the earlier ones left in the analysis. */
enum md_status md_pass_environment(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_kernel(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_match(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_handed(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_sequence(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_evidence(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_output(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_pointer(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_variable(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_content(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_table(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_constant(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_given(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_untouched(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_tensor(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_event(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_admit(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_order(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_neighbour(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_overlap(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_group(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_place(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_image(struct md_analysis *analysis, struct md_error *err);
enum md_status md_pass_emit(struct md_analysis *analysis, struct md_error *err);

/* Refuses all graphs of a group when one of them is refused. */
void md_analysis_close_groups(struct md_analysis *analysis);
/* Refuses a graph; the first reason stays. */
void md_pair_refuse(struct md_pair *pair, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum md_status md_analysis_no_memory(struct md_error *err);
/* Moves both views to the launch of a node. */
enum md_status md_analysis_seek_node(struct md_analysis *analysis, const struct md_pair *pair, uint32_t node,
				     struct md_error *err);
/*
 * Indices of a graph's nodes in the order of their launches, and the graphs that are not refused in the order of their
 * captures. The caller owns the list; NULL: out of memory.
 */
uint32_t *md_analysis_order_nodes(const struct md_trace_graph *graph);
struct md_pair **md_analysis_order_pairs(struct md_analysis *analysis, uint32_t *count);
/*
 * The first variable of the image (of the first capture) that the engine writes and whose value cannot be stored: only
 * the engine's own copy of the image has that value. NULL: there is none.
 */
const struct md_variable *md_variable_unsettled(const struct md_analysis *analysis, uint32_t image);
/* Why a pointer into this module global cannot be restored; NULL: it can. */
const char *md_variable_foreign(const struct md_analysis *analysis, uint32_t alloc);
/* Makes analysis->group; false when out of memory. */
bool md_analysis_group_mappings(struct md_analysis *analysis);
/*
 * Numbers of events in the order in which nodes of the graph use them, or, of events of communication libraries, as struct
 * md_node says; other nodes have MD_NONE. NULL: out of memory.
 */
uint32_t *md_analysis_number_events(const struct md_trace *trace, const struct md_trace_graph *graph);
/* The name of a communication library's event; NULL: it is another one. */
const char *md_analysis_event_name(const struct md_trace *trace, uint32_t event);
/* NULL stays NULL; sets *failed when out of memory. */
char *md_analysis_copy_text(const char *text, bool *failed);

/*
 * unset.c: bytes [at, at + size) of a kernel's parameters differ between the captures and are no pointer. Refuses the
 * graph if they are a value of the process rather than bytes that nobody set. in_doubt: they may be an address, which
 * replay will tell. False when out of memory.
 */
bool md_unset_judge(struct md_analysis *analysis, struct md_pair *pair, uint32_t node, uint32_t at, uint32_t size,
		    bool in_doubt);

/* ---- pass_content.c: contents of private memory ---- */

/* The second capture's copy of the same bytes; known tells which of them it saved. */
struct md_counterpart {
	uint8_t *data, *known; /* owned */
	uint64_t sequence;
	bool found;
};
void md_counterpart_finish(struct md_counterpart *counterpart);
/*
 * Finds the pointers in held contents, whose bytes are `one`, by both captures; the views stand where the contents were
 * saved. The first word that is unprovable is named in *broken, which the caller owns. False when out of memory.
 */
bool md_content_classify(struct md_analysis *analysis, struct md_held *held, const uint8_t *one,
			 const struct md_counterpart *two, char **broken);
/*
 * No graph may use the contents of the allocation; the first reason stays. The second function refuses every graph that
 * reaches such contents.
 */
void md_content_break(struct md_analysis *analysis, uint32_t alloc, const char *why);
void md_content_refuse_users(struct md_analysis *analysis);

/* ---- one word, in both captures ---- */

enum md_word {
	MD_WORD_CONSTANT,
	MD_WORD_POINTER,
	MD_WORD_NOISE,
	MD_WORD_OPEN, /* lies in no allocation, but moved as far as one did: may be a virtual origin */
	/*
	 * The word lies in memory that was live at the launch in both captures, but not at the same place: noise, if
	 * replay proves that. target is its place in the first capture; why names both places.
	 */
	MD_WORD_DOUBTFUL,
	MD_WORD_REFUSED, /* unprovable; why has the reason */
};

#define MD_WORD_WHY_BYTES 640

/*
 * Classifies the word that is `one` in the first and `two` in the second capture (with one capture: both the same). The
 * views stand at the sequence of the launch. graph_sequence is that of the first capture's graph. why has
 * MD_WORD_WHY_BYTES bytes.
 */
enum md_word md_word_resolve(struct md_analysis *analysis, uint64_t one, uint64_t two, uint64_t graph_sequence,
			     struct md_target *target, char *why);
/* Judges a word by liveness in the first capture alone: constant, pointer or refused. */
enum md_word md_word_guess(struct md_analysis *analysis, uint64_t value, uint64_t graph_sequence,
			   struct md_target *target, char *why);
/*
 * An open word: the nearest allocation within 64 MiB that moved equally far, among those marked in referenced (one byte
 * per allocation of the first capture) if there is one, else among all live ones, provided that it lies in none.
 */
enum md_word md_word_origin(struct md_analysis *analysis, uint64_t one, uint64_t two, uint64_t graph_sequence,
			    const uint8_t *referenced, struct md_target *target, char *why);

#endif
