/* SPDX-License-Identifier: Apache-2.0 */
/* Everything is hidden (-fvisibility=hidden) but what says that others may call it. */
#ifndef MD_BASE_EXPORT_H
#define MD_BASE_EXPORT_H

#define MD_EXPORT __attribute__((visibility("default")))

#endif
