/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of the HTML report: colours, widths from a phone to a wide screen, and the script that sorts tables. */
#include <string.h>

#include "simulator/report/html.h"

static const char style[] =
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1b1b1b;--quiet:#5c5c5c;--rule:#d5d5d5;--band:#f3f3f1;"
    "--s0:#0068a8;--s1:#c44e00;--s2:#00805c;--s3:#b0528e;--s4:#7d6400;--s5:#3a9ad0;--s6:#6b4bb3;--s7:#666;"
    "--artifacts:#5b8db8;--kv:#d9a441;--residues:#8b6fa8}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#16181a;--ink:#e8e8e6;--quiet:#a5a5a2;--rule:#3c3f42;"
    "--band:#212427;"
    "--s0:#4eb0ee;--s1:#ff9350;--s2:#35c79a;--s3:#e08cc0;--s4:#d9bb4a;--s5:#9bd5f5;--s6:#b39cf0;--s7:#aaa;"
    "--artifacts:#4f86b5;--kv:#c8933a;--residues:#9a80b8}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:100rem;padding:1rem;background:var(--paper);color:var(--ink);"
    "font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\n"
    "h1{font-size:1.5rem;line-height:1.2}h2{font-size:1.15rem;margin:2rem 0 .5rem}p{margin:.5rem 0;max-width:60rem}\n"
    ".note{border-left:.25rem solid var(--s1);padding:.25rem .75rem;background:var(--band)}\n"
    "dl{display:grid;grid-template-columns:minmax(4rem,max-content) minmax(0,1fr);gap:.15rem 1rem;margin:1rem 0;"
    "max-width:60rem}dt{color:var(--quiet);max-width:12rem}dd{margin:0}\n"
    "summary{cursor:pointer}details>summary.title{font-weight:600;margin:.75rem 0 .25rem}\n"
    /* tables scroll in boxes of their own, and long ones keep their heads in sight */
    ".scroll{overflow-x:auto}.tall{overflow:auto;max-height:80vh}.tall thead th{position:sticky;top:0;z-index:2}\n"
    ".tall thead th:first-child{left:0;z-index:3}\n"
    "table{border-collapse:separate;border-spacing:0;font-size:.9rem;font-variant-numeric:tabular-nums}\n"
    "caption{text-align:left;color:var(--quiet);padding-bottom:.25rem}\n"
    "th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule);"
    "background:var(--paper)}\n"
    "td.text,th.text{text-align:left}\n"
    "thead th:first-child,th[scope=row],th[scope=rowgroup]{text-align:left;position:sticky;left:0;z-index:1}\n"
    "th[scope=row]{font-weight:normal}\n"
    "th[scope=rowgroup]{font-weight:600;background:var(--band)}\n"
    "th button{all:unset;cursor:pointer;font-weight:inherit}th button:focus-visible{outline:2px solid var(--s0)}\n"
    "th button::after{content:\" \\2195\";color:var(--quiet)}th[aria-sort=ascending] button::after{content:\" "
    "\\2191\"}\n"
    "th[aria-sort=descending] button::after{content:\" \\2193\"}\n"
    "@media(max-width:40rem){body{padding:.75rem}th,td{padding:.2rem .4rem}"
    "th[scope=row]{white-space:normal;min-width:6.5rem;max-width:8rem}.tall{max-height:70vh}"
    ".figures td{white-space:normal;overflow-wrap:normal;min-width:5rem}}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,23rem),1fr));gap:1.5rem}\n"
    "figure{margin:0;min-width:0}figcaption{font-weight:600;margin-bottom:.25rem}"
    "svg{display:block;width:100%;height:auto;max-width:36rem}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--ink)}.end{text-anchor:end}.middle{text-anchor:middle}"
    "svg .strong{font-weight:600}\n"
    ".grid{stroke:var(--rule);fill:none}.mark{stroke:var(--quiet);stroke-dasharray:3 3;fill:none}\n"
    ".line{fill:none;stroke-width:1.8}.thin{stroke-width:1.2}.dashed{stroke-dasharray:6 3}.pale{opacity:.55}\n"
    ".room{fill:var(--band)}.artifacts{fill:var(--artifacts)}.kv{fill:var(--kv)}.residues{fill:var(--residues)}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;list-style:none;margin:.5rem 0 1rem;padding:0;font-size:.9rem}"
    ".legend svg{display:inline-block;width:1.8rem;height:.8rem;margin-right:.35rem;vertical-align:middle}\n";

/* No '<' and no '&': the page is also well-formed as XML. */
static const char script[] = "document.querySelectorAll('table.sortable').forEach(function(table){\n"
			     "var body=table.tBodies[0];\n"
			     "function key(row,column,number){\n"
			     "var text=row.cells[column].textContent;\n"
			     "if(!number)return text;\n"
			     "var value=parseFloat(text);\n"
			     "return isNaN(value)?-1:value;\n"
			     "}\n"
			     "Array.from(table.tHead.rows[0].cells).forEach(function(head,column,heads){\n"
			     "var number=!head.classList.contains('text'),button=document.createElement('button');\n"
			     "button.type='button';\n"
			     "button.textContent=head.textContent;\n"
			     "head.replaceChildren(button);\n"
			     "button.addEventListener('click',function(){\n"
			     "var was=head.getAttribute('aria-sort'),down=was?was==='ascending':number;\n"
			     "heads.forEach(function(other){other.removeAttribute('aria-sort')});\n"
			     "head.setAttribute('aria-sort',down?'descending':'ascending');\n"
			     "var rows=Array.from(body.rows).sort(function(a,b){\n"
			     "var x=key(a,column,number),y=key(b,column,number);\n"
			     "var order=number?x-y:x.localeCompare(y,'en',{numeric:true});\n"
			     "return down?-order:order;\n"
			     "});\n"
			     "body.append.apply(body,rows);\n"
			     "});\n"
			     "});\n"
			     "});\n";

/* Nothing is loaded, and no other script runs, whatever a name may hold; the test computes this hash of the script. */
#define SCRIPT_SHA256 "fto0qI7WvrfxnBmjmOW9mkXsGWUDhnaPxm2OIgQOjHg="

void md_sim_html_begin(FILE *out)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
	      "<meta charset=\"utf-8\"/>\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
	      "script-src 'sha256-" SCRIPT_SHA256 "'\"/>\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
	      "<title>Scheduler simulation</title>\n<style>\n",
	      out);
	for (size_t c = 0; c < MD_SIM_PLOT_COLOURS; c++)
		fprintf(out, ".line.s%zu{stroke:var(--s%zu)}.bar.s%zu{fill:var(--s%zu)}\n", c, c, c, c);
	fputs(style, out);
	fputs("</style>\n</head>\n<body>\n<main>\n", out);
}

void md_sim_html_end(FILE *out)
{
	fprintf(out, "</main>\n<script>%s</script>\n</body>\n</html>\n", script);
}

void md_sim_html_element(const char *name, const char *text, FILE *out)
{
	fprintf(out, "<%s>", name);
	md_sim_plot_escape(text, out);
	fprintf(out, "</%.*s>\n", (int)strcspn(name, " "), name);
}
