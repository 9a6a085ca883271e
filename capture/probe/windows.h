/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of state that is too large to be saved. */
#ifndef MD_CAPTURE_PROBE_WINDOWS_H
#define MD_CAPTURE_PROBE_WINDOWS_H

#include "capture/probe/probe.h"

/* Keeps the contents of the windows of all sampled regions, on the device if there is room. */
enum md_status md_capture_windows_keep(struct md_capture_probe *probe, struct md_error *err);
/* After the first replay: makes spans of windows that it has changed, and of some others. */
enum md_status md_capture_windows_watch(struct md_capture_probe *probe, struct md_error *err);
void md_capture_windows_release(struct md_capture_probe *probe);

#endif
