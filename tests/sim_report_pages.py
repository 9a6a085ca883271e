# SPDX-License-Identifier: Apache-2.0
"""Opens a simulation's HTML in a browser, as on a phone and on wide screens: exit 1 and a line for each fault, 77 without a browser.

sim_report_pages.py PAGE [FOLDER]: screenshots go to the folder. TENANTS=JSON: its table of tenants has the numbers of this report."""
import json
import os
import sys

import browser

page, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
faults, checks = [], 0

# What stands out of the window to the right, although no box around it scrolls; text in plots that stands out of its plot.
CUT_OFF = """(() => {
    const boxed = element => { for (; element; element = element.parentElement) if (getComputedStyle(element).overflowX === 'auto') return true; return false; };
    const found = [];
    for (const element of document.querySelectorAll('main *')) {
        const box = element.getBoundingClientRect(), svg = element.ownerSVGElement;
        if (box.width && !svg && !boxed(element) && box.right > innerWidth + 0.5) found.push(element.tagName + ' ' + element.textContent.slice(0, 40));
        if (element.tagName !== 'text') continue;
        const around = svg.getBoundingClientRect();
        if (box.width && (box.right > around.right + 1 || box.left < around.left - 1)) found.push('text in a plot: ' + element.textContent.slice(0, 40));
    }
    return found.slice(0, 5);
})()"""
# Text on its background: the ratio of their luminances, by WCAG; 4.5 is what it asks for.
CONTRAST = """(() => {
    const light = colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                              return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const ratio = colour => { const ink = light(colour); return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); };
    return Math.min(...['body', 'dt', 'caption', 'td'].map(name => ratio(getComputedStyle(document.querySelector(name)).color)), ratio(getComputedStyle(document.querySelector('svg text')).fill));
})()"""
COLUMN = "Array.from(document.querySelector('table.sortable').tBodies[0].rows, row => row.cells[%d].textContent)"
HEAD = "document.querySelector('table.sortable').tHead.rows[0].cells[%d]"


def expect(right, what):
    global checks
    checks += 1
    if not right:
        faults.append(what)


def check_widths(view):
    for width in (360, 800, 1200, 1920):
        for dark in (False, True):
            view.resize(width, 900, dark)
            where = f"{width} px{', dark' if dark else ''}"
            wide = view.evaluate("document.documentElement.scrollWidth")
            expect(wide <= width, f"{where}: the page is {wide} px wide")
            cut = view.evaluate(CUT_OFF)
            expect(not cut, f"{where}: cut off: {cut}")
            smallest = view.evaluate("Math.min(...Array.from(document.querySelectorAll('figure svg'), s => 12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width).filter(x => x), 99)")
            expect(smallest >= 9, f"{where}: text of {smallest} px in plots")
            contrast = view.evaluate(CONTRAST)
            expect(contrast >= 4.5, f"{where}: a contrast of {contrast}")
            if folder:
                view.screenshot(f"{folder}/{width}{'-dark' if dark else ''}.png")


def check_sorting(view):
    view.resize(1200, 900)
    expect(view.evaluate(f"{HEAD % 3}.querySelector('button') !== null"), "a head of the functions is a button")
    for clicks, falling in ((1, True), (2, False)):
        view.evaluate(f"{HEAD % 3}.querySelector('button').click()")
        numbers = [int(text) for text in view.evaluate(COLUMN % 3)]
        expect(numbers == sorted(numbers, reverse=falling) and len(set(numbers)) > 1, f"requests after {clicks} clicks: {numbers[:5]} ...")
        said = view.evaluate(f"{HEAD % 3}.getAttribute('aria-sort')")
        expect(said == ("descending" if falling else "ascending"), f"aria-sort is {said}")
    view.evaluate(f"{HEAD % 0}.querySelector('button').click()")
    names = view.evaluate(COLUMN % 0)
    expect(names[0] < names[-1], f"names: {names[0]} ... {names[-1]}")


TENANTS = "document.querySelector('[aria-label=Tenants]')"
# For each row, for each cell: its text, whether it is cut off, and the size of its letters once the box has been scrolled to it.
TENANT_CELLS = """(() => {
    const box = %s;
    return Array.from(box.querySelectorAll('tr'), row => Array.from(row.cells, cell => {
        cell.scrollIntoView({block: 'nearest', inline: 'center'});
        const at = cell.getBoundingClientRect(), around = box.getBoundingClientRect();
        const left = Math.max(around.left, 0) - 1, right = Math.min(around.right, innerWidth) + 1;
        const seen = document.elementFromPoint((at.left + at.right) / 2, (at.top + at.bottom) / 2);
        return {text: cell.textContent, size: parseFloat(getComputedStyle(cell).fontSize),
                shown: at.left >= left && at.right <= right && (cell === seen || cell.contains(seen)) && cell.scrollWidth <= cell.clientWidth + 1};
    }));
})()""" % TENANTS


def tenant_rows(report):
    """What the table has to say: tenant, policy and numbers, as the JSON has them."""
    rows = []
    for weight, name in ((t["weight"], t["name"]) for t in report["functions"]["tenants"]):
        for policy in report["policies"]:
            made = next(t for t in policy["tenants"] if t["name"] == name)
            if name == "default" and not made["requests"]:
                continue
            all_s, contended = sum(t["gpu_s"] for t in policy["tenants"]), made["contended"]
            refused = sum(made["rejected"].values())
            had = "-" if contended["s"] <= 0 else "%.1f s: %.1f %%, %.1f %%" % (
                contended["s"], 100 * contended["gpu_s"] / contended["all_s"], 100 * contended["due_s"] / contended["all_s"])
            rows.append({"tenant": name, "policy": policy["name"], "weight": f"{weight:g}", "requests": str(made["requests"]),
                         "served": str(made["served"]), "most waiting": str(made["waiting_most"]), "GPU-s": f"{made['gpu_s']:.1f}",
                         "share": f"{100 * made['gpu_s'] / all_s:.1f} %", "contended: had, due": had, "rejected": refused})
    return rows


def check_tenants(view, report):
    view.open(page)
    for width in (360, 1200):
        view.resize(width, 640)
        if not view.evaluate(f"{TENANTS} !== null"):
            expect(False, f"{width} px: there is no table of tenants")
            return
        expect(view.evaluate(f"getComputedStyle({TENANTS}).overflowX") == "auto", f"{width} px: the table of tenants scrolls")
        head, *rows = view.evaluate(TENANT_CELLS)
        hidden = [cell["text"] for row in rows for cell in row if not cell["shown"]]
        expect(not hidden, f"{width} px: cells of tenants that cannot be scrolled to: {hidden[:5]}")
        smallest = min(cell["size"] for row in [head] + rows for cell in row)
        expect(smallest >= 11, f"{width} px: letters of {smallest} px in the table of tenants")
        wanted, titles = tenant_rows(report), [cell["text"] for cell in head]
        expect(len(rows) == len(wanted), f"{len(rows)} rows of tenants and policies, not {len(wanted)}")
        for row, want in zip(rows, wanted):
            found = dict(zip(titles, (cell["text"] for cell in row)))
            refused = found.get("rejected", "").split(":")[0]
            for title, value in want.items():
                is_there = refused == str(value) if title == "rejected" else found.get(title) == value
                expect(is_there, f"{want['tenant']}, {want['policy']}: {title} is {found.get(title)}, not {value}")


def check_without_scripts(view, rows):
    view.scripts(False)
    view.open(page)
    expect(view.evaluate("document.querySelectorAll('th button').length") == 0, "without scripts, heads are no buttons")
    expect(view.evaluate("document.querySelector('table.sortable').tBodies[0].rows.length") == rows, "without scripts, all rows are there")


if not browser.find():
    print("no Chromium here (Debian: chromium-headless-shell)")
    sys.exit(77)
with browser.Browser() as view:
    view.open(page)
    expect(not view.complaints(), f"the page: {view.complaints()}")
    check_widths(view)
    check_sorting(view)
    if "TENANTS" in os.environ:
        with open(os.environ["TENANTS"], encoding="utf-8") as file:
            check_tenants(view, json.load(file))
    check_without_scripts(view, view.evaluate("document.querySelector('table.sortable').tBodies[0].rows.length"))
print("\n".join(faults + [f"{checks} checks"]))
sys.exit(bool(faults))
