# SPDX-License-Identifier: Apache-2.0
"""Opens a simulation's HTML in a browser, as on a phone and on wide screens: exit 1 and a line for each fault, 77 without a browser.

sim_report_pages.py PAGE [FOLDER]: screenshots go to the folder."""
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
    check_without_scripts(view, view.evaluate("document.querySelector('table.sortable').tBodies[0].rows.length"))
print("\n".join(faults + [f"{checks} checks"]))
sys.exit(bool(faults))
