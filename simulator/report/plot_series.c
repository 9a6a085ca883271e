/* SPDX-License-Identifier: Apache-2.0 */
/* Plots over simulated time as SVG inside of HTML: lines of several policies, and what one GPU's memory holds as areas. */
#include <math.h>
#include <stdio.h>

#include "simulator/report/report.h"

#define LEFT 52
#define RIGHT (MD_SIM_PLOT_WIDTH - 12)
#define TOP 10
#define BOTTOM 150
#define HEIGHT 190
#define TICKS 6

/* Both axes are linear and begin with 0. */
struct axes {
	double end;         /* of the time, in the unit */
	double step;        /* of the time's ticks */
	double top, step_y; /* of the values */
	double unit_s;
	const char *unit;
};

/* 1, 2 or 5 times a power of ten: at most TICKS of it are less than or equal to value. */
static double nice_step(double value)
{
	double ten = pow(10, floor(log10(value / TICKS)));
	static const double steps[] = {1, 2, 5};
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (value / (ten * steps[i]) <= TICKS)
			return ten * steps[i];
	return 10 * ten;
}

static struct axes fit(double end_s, double greatest, bool exact)
{
	static const struct {
		double most_s, unit_s;
		const char *unit;
	} units[] = {{180, 1, "s"}, {180 * 60, 60, "min"}, {72 * 3600, 3600, "h"}, {INFINITY, 86400, "days"}};
	struct axes axes = {0};
	size_t i = 0;
	while (end_s > units[i].most_s)
		i++;
	axes.unit_s = units[i].unit_s;
	axes.unit = units[i].unit;
	axes.end = end_s > 0 && isfinite(end_s) ? end_s / units[i].unit_s : 1;
	axes.step = nice_step(axes.end);
	axes.top = greatest > 0 && isfinite(greatest) ? greatest : 1;
	axes.step_y = nice_step(axes.top);
	if (!exact)
		axes.top = axes.step_y * ceil(axes.top / axes.step_y - 1e-9);
	return axes;
}

static double place_x(const struct axes *axes, double seconds)
{
	return LEFT + (RIGHT - LEFT) * fmin(fmax(seconds / axes->unit_s / axes->end, 0), 1);
}

static double place_y(const struct axes *axes, double value)
{
	return BOTTOM - (BOTTOM - TOP) * fmin(fmax(value / axes->top, 0), 1);
}

static void draw_axes(const struct axes *axes, const char *y_unit, FILE *out)
{
	char label[64];
	for (int i = 0; i * axes->step_y <= axes->top * (1 + 1e-9); i++) {
		double y = place_y(axes, i * axes->step_y);
		fprintf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, y, RIGHT);
		snprintf(label, sizeof(label), "%g%s", i * axes->step_y, y_unit);
		md_sim_plot_text(LEFT - 4, y + 4, "end", label, out);
	}
	for (int i = 0; i * axes->step <= axes->end * (1 + 1e-9); i++) {
		double x = place_x(axes, i * axes->step * axes->unit_s);
		fprintf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", x, TOP, BOTTOM);
		snprintf(label, sizeof(label), "%g", i * axes->step);
		md_sim_plot_text(x, BOTTOM + 15, x > RIGHT - 12 ? "end" : "middle", label, out);
	}
	snprintf(label, sizeof(label), "simulated time, %s", axes->unit);
	md_sim_plot_text((LEFT + RIGHT) / 2.0, HEIGHT - 6, "middle", label, out);
}

static double end_of(const struct md_sim_line *line, size_t index)
{
	return fmin(line->interval_s * (double)(index + 1), line->end_s);
}

/* Each value holds for its interval; equal neighbours are one piece. Where there is none, the line has a gap. */
static void draw_steps(const struct md_sim_line *line, const struct axes *axes, FILE *out)
{
	bool drawn = false;
	for (size_t i = 0; i < line->count; i++) {
		double value = line->values[i];
		if (!isfinite(value)) {
			drawn = false;
			continue;
		}
		if (drawn)
			fprintf(out, "V%.1f", place_y(axes, value));
		else
			fprintf(out, "M%.1f %.1f", place_x(axes, line->interval_s * (double)i), place_y(axes, value));
		drawn = true;
		while (i + 1 < line->count && line->values[i + 1] == value)
			i++;
		fprintf(out, "H%.1f", place_x(axes, end_of(line, i)));
	}
}

/* ---- lines --------------------------------------------------------------------------------------------------------- */

static double greatest_of(const struct md_sim_line *line)
{
	double greatest = 0;
	for (size_t i = 0; i < line->count; i++)
		if (isfinite(line->values[i]))
			greatest = fmax(greatest, line->values[i]);
	return greatest;
}

static double mean_of(const struct md_sim_line *line)
{
	double sum = 0, length = 0;
	for (size_t i = 0; i < line->count; i++) {
		if (!isfinite(line->values[i]))
			continue;
		double covered = fmax(end_of(line, i) - line->interval_s * (double)i, 0);
		sum += line->values[i] * covered;
		length += covered;
	}
	return length > 0 ? sum / length : 0;
}

static void describe_lines(const struct md_sim_lines *plot, FILE *out)
{
	fputs("Over simulated time, horizontally.", out);
	for (size_t i = 0; i < plot->count; i++) {
		fputc(' ', out);
		md_sim_plot_escape(plot->names[i], out);
		fprintf(out, ": mean of the intervals %.3g%s, greatest %.3g%s.", mean_of(&plot->lines[i]), plot->unit,
			greatest_of(&plot->lines[i]), plot->unit);
	}
	fputs("</desc>\n", out);
}

void md_sim_plot_lines(const struct md_sim_lines *plot, FILE *out)
{
	double greatest = plot->full, end = 0;
	for (size_t i = 0; i < plot->count; i++) {
		greatest = plot->full > 0 ? greatest : fmax(greatest, greatest_of(&plot->lines[i]));
		end = fmax(end, plot->lines[i].end_s);
	}
	struct axes axes = fit(end, greatest, plot->full > 0);
	md_sim_plot_begin(plot->id, plot->title, HEIGHT, out);
	describe_lines(plot, out);
	draw_axes(&axes, plot->unit, out);
	for (size_t i = 0; i < plot->count; i++) {
		fprintf(out, "<path class=\"line thin s%zu%s\" d=\"M%d %d", i % MD_SIM_PLOT_COLOURS,
			i / MD_SIM_PLOT_COLOURS % 2 ? " dashed" : "", LEFT, BOTTOM);
		draw_steps(&plot->lines[i], &axes, out);
		fputs("\"><title>", out);
		md_sim_plot_escape(plot->names[i], out);
		fputs("</title></path>\n", out);
	}
	fputs("</svg>\n", out);
}

/* ---- areas --------------------------------------------------------------------------------------------------------- */

static void draw_area(const char *class, const char *name, const struct md_sim_line *line, const struct axes *axes,
		      FILE *out)
{
	if (!line->count)
		return;
	fprintf(out, "<path class=\"%s\" d=\"", class);
	draw_steps(line, axes, out);
	fprintf(out, "V%dH%dZ\"><title>%s</title></path>\n", BOTTOM, LEFT, name);
}

/* The sums are drawn one before the other, the greatest first. */
void md_sim_plot_memory(const struct md_sim_memory_plot *plot, FILE *out)
{
	static const char *const names[MD_SIM_MEMORY_PARTS] = {"artifacts", "residues", "KV caches"};
	static const char *const classes[MD_SIM_MEMORY_PARTS] = {"artifacts", "residues", "kv"};
	struct axes axes = fit(plot->end_s, plot->full_gb, true);
	md_sim_plot_begin(plot->id, plot->title, HEIGHT, out);
	fprintf(out, "Over simulated time, of %.3g GB in the mean:", plot->full_gb);
	for (size_t i = 0; i < MD_SIM_MEMORY_PARTS; i++)
		fprintf(out, "%s %s %.3g GB", i ? "," : "", names[i],
			mean_of(&plot->sums[i]) - (i ? mean_of(&plot->sums[i - 1]) : 0));
	fprintf(out,
		", the rest is free.</desc>\n<rect class=\"room\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
		LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP);
	for (size_t i = MD_SIM_MEMORY_PARTS; i-- > 0;)
		draw_area(classes[i], names[i], &plot->sums[i], &axes, out);
	draw_axes(&axes, "", out);
	fputs("</svg>\n", out);
}
