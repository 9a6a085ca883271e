/* SPDX-License-Identifier: Apache-2.0 */
/* Everything is hidden (-fvisibility=hidden) except what is marked for export. */
#ifndef MD_BASE_EXPORT_H
#define MD_BASE_EXPORT_H

#define MD_EXPORT __attribute__((visibility("default")))

#endif
