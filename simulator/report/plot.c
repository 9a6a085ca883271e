/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plots as SVG inside of HTML: distributions as curves, and horizontal bars; well-formed, with titles for screen
 * readers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "simulator/report/report.h"

#define WIDTH MD_SIM_PLOT_WIDTH
#define LETTERS 40 /* at least so many fit in the width */

/* ---- text ------------------------------------------------------------------------------------------------------- */

static void escape(const char *text, size_t most, FILE *out)
{
	for (; *text && most; most--) {
		uint32_t point = 0;
		size_t length = md_utf8_length(text, &point);
		unsigned char first = (unsigned char)*text;
		if (first == '<')
			fputs("&lt;", out);
		else if (first == '>')
			fputs("&gt;", out);
		else if (first == '&')
			fputs("&amp;", out);
		else if (first == '"')
			fputs("&quot;", out);
		else if (!length || (md_utf8_acts(point) && first != '\n' && first != '\t'))
			fputs("&#xFFFD;", out);
		else
			fwrite(text, 1, length, out);
		text += length ? length : 1;
	}
	if (*text)
		fputs("...", out);
}

void md_sim_plot_escape(const char *text, FILE *out)
{
	escape(text, SIZE_MAX, out);
}

void md_sim_plot_escape_most(const char *text, size_t most, FILE *out)
{
	escape(text, most, out);
}

void md_sim_plot_begin(const char *id, const char *title, int height, FILE *out)
{
	fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-title %s-desc\">\n", WIDTH, height,
		id, id);
	fprintf(out, "<title id=\"%s-title\">", id);
	md_sim_plot_escape(title, out);
	fprintf(out, "</title>\n<desc id=\"%s-desc\">", id);
}

void md_sim_plot_text(double x, double y, const char *class, const char *text, FILE *out)
{
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
	md_sim_plot_escape_most(text, LETTERS, out);
	fputs("</text>\n", out);
}

/* ---- curves ----------------------------------------------------------------------------------------------------- */

#define LEFT 46
#define RIGHT (WIDTH - 12)
#define TOP 10
#define BOTTOM 210
#define HEIGHT 250
#define DECADES_MAX 5

/* A logarithmic axis over whole decades. */
struct axis {
	int low, high; /* powers of ten */
};

static struct axis fit(const struct md_sim_curves *plot)
{
	double least = INFINITY, greatest = 0;
	for (size_t i = 0; i < plot->count; i++)
		for (size_t k = 0; k < plot->curves[i].count; k++) {
			double value = plot->curves[i].values[k];
			if (value > 0 && isfinite(value)) {
				least = fmin(least, value);
				greatest = fmax(greatest, value);
			}
		}
	if (plot->mark) {
		least = fmin(least, 0.5);
		greatest = fmax(greatest, 2);
	}
	if (greatest <= 0)
		return (struct axis){0, 1};
	struct axis axis = {(int)floor(log10(least)), (int)ceil(log10(greatest))};
	if (axis.high == axis.low)
		axis.high++;
	if (axis.high - axis.low > DECADES_MAX)
		axis.low = axis.high - DECADES_MAX;
	return axis;
}

static double place_x(const struct axis *axis, double value)
{
	double at = value > 0 ? (log10(value) - axis->low) / (axis->high - axis->low) : 0;
	return LEFT + (RIGHT - LEFT) * fmin(fmax(at, 0), 1);
}

static double place_y(double part)
{
	return BOTTOM - (BOTTOM - TOP) * part;
}

static void draw_axes(const struct md_sim_curves *plot, const struct axis *axis, FILE *out)
{
	char label[32];
	for (int i = 0; i <= 4; i++) {
		double y = place_y(0.25 * i);
		fprintf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, y, RIGHT);
		snprintf(label, sizeof(label), "%d %%", 25 * i);
		md_sim_plot_text(LEFT - 4, y + 4, "end", label, out);
	}
	for (int power = axis->low; power <= axis->high; power++) {
		double x = place_x(axis, pow(10, power));
		fprintf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", x, TOP, BOTTOM);
		snprintf(label, sizeof(label), "%g", pow(10, power));
		md_sim_plot_text(x, BOTTOM + 14, power == axis->high ? "end" : "middle", label, out);
	}
	md_sim_plot_text((LEFT + RIGHT) / 2.0, HEIGHT - 8, "middle", plot->x_label, out);
	if (plot->mark) {
		double x = place_x(axis, 1);
		fprintf(out, "<path class=\"mark\" d=\"M%.1f %dV%d\"/>\n", x, TOP, BOTTOM);
		md_sim_plot_text(x + 3, BOTTOM - 6, "start", plot->mark, out);
	}
}

static double value_at(const struct md_sim_cdf *curve, double part)
{
	size_t i = 0;
	while (i + 1 < curve->count && curve->parts[i] < part)
		i++;
	return curve->values[i];
}

static void describe_curves(const struct md_sim_curves *plot, FILE *out)
{
	fputs("Part of the requests, vertically, that stay within a value, horizontally on a logarithmic axis.", out);
	for (size_t i = 0; i < plot->count; i++) {
		fputc(' ', out);
		md_sim_plot_escape(plot->names[i], out);
		if (plot->curves[i].count)
			fprintf(out, ": half within %.3g, 98 %% within %.3g.", value_at(&plot->curves[i], 0.5),
				value_at(&plot->curves[i], 0.98));
		else
			fputs(": no request was served.", out);
	}
	fputs("</desc>\n", out);
}

static void draw_curve(const struct md_sim_curves *plot, const struct axis *axis, size_t index, FILE *out)
{
	const struct md_sim_cdf *curve = &plot->curves[index];
	if (!curve->count)
		return;
	fprintf(out, "<path class=\"line s%zu%s\" d=\"M%.1f %.1f", index % MD_SIM_PLOT_COLOURS,
		index / MD_SIM_PLOT_COLOURS % 2 ? " dashed" : "", place_x(axis, curve->values[0]), place_y(0));
	for (size_t k = 0; k < curve->count; k++)
		fprintf(out, "H%.1fV%.1f", place_x(axis, curve->values[k]), place_y(curve->parts[k]));
	fputs("\"><title>", out);
	md_sim_plot_escape(plot->names[index], out);
	fputs("</title></path>\n", out);
}

void md_sim_plot_curves(const struct md_sim_curves *plot, FILE *out)
{
	struct axis axis = fit(plot);
	md_sim_plot_begin(plot->id, plot->title, HEIGHT, out);
	describe_curves(plot, out);
	draw_axes(plot, &axis, out);
	for (size_t i = 0; i < plot->count; i++)
		draw_curve(plot, &axis, i, out);
	fputs("</svg>\n", out);
}

/* ---- bars ------------------------------------------------------------------------------------------------------- */

#define BAR 13
#define GAP 8
#define HEAD 16 /* a group's name, above its bars */
#define VALUE_ROOM 80

static double greatest_of(const struct md_sim_bars *plot)
{
	double greatest = plot->full;
	for (size_t i = 0; greatest <= 0 && i < plot->group_count * plot->count; i++)
		greatest = plot->values[i];
	for (size_t i = 0; plot->full <= 0 && i < plot->group_count * plot->count; i++)
		greatest = fmax(greatest, plot->values[i]);
	return greatest > 0 ? greatest : 1;
}

static void value_text(const struct md_sim_bars *plot, size_t index, char text[64])
{
	if (plot->values[index] < 0)
		snprintf(text, 64, "none");
	else
		snprintf(text, 64, "%.*f%s", plot->decimals, plot->values[index], plot->unit);
}

static void describe_bars(const struct md_sim_bars *plot, FILE *out)
{
	char text[64];
	for (size_t g = 0; g < plot->group_count; g++) {
		md_sim_plot_escape_most(plot->groups[g], MD_SIM_NAME_SHOWN, out);
		for (size_t i = 0; i < plot->count; i++) {
			fputs(i ? ", " : ": ", out);
			md_sim_plot_escape(plot->names[i], out);
			value_text(plot, g * plot->count + i, text);
			fprintf(out, " %s", text);
		}
		fputs(". ", out);
	}
	fputs("</desc>\n", out);
}

static void draw_bar(const struct md_sim_bars *plot, size_t index, double y, double scale, FILE *out)
{
	size_t name = index % plot->count;
	double value = fmax(plot->values[index], 0);
	double width = fmax(fmin(value * scale, WIDTH - VALUE_ROOM), 0.5);
	char text[64];
	value_text(plot, index, text);
	fprintf(out, "<rect class=\"bar s%zu%s\" x=\"0\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"><title>",
		name % MD_SIM_PLOT_COLOURS, name / MD_SIM_PLOT_COLOURS % 2 ? " pale" : "", y, width, BAR - 1);
	md_sim_plot_escape(plot->names[name], out);
	fprintf(out, ": %s</title></rect>\n", text);
	md_sim_plot_text(width + 4, y + BAR - 2, "start", text, out);
}

void md_sim_plot_bars(const struct md_sim_bars *plot, FILE *out)
{
	double group = HEAD + BAR * (double)plot->count + GAP;
	double scale = (WIDTH - VALUE_ROOM) / greatest_of(plot);
	md_sim_plot_begin(plot->id, plot->title, (int)(group * (double)plot->group_count) + 2, out);
	describe_bars(plot, out);
	for (size_t g = 0; g < plot->group_count; g++) {
		double y = group * (double)g;
		md_sim_plot_text(0, y + HEAD - 4, "start strong", plot->groups[g], out);
		for (size_t i = 0; i < plot->count; i++)
			draw_bar(plot, g * plot->count + i, y + HEAD + BAR * (double)i, scale, out);
	}
	fputs("</svg>\n", out);
}
