/* SPDX-License-Identifier: Apache-2.0 */
/* Logging to stderr or a file, filtered by level; safe inside another process (never its stdout). */
#ifndef MD_BASE_LOG_H
#define MD_BASE_LOG_H

enum md_log_level { MD_LOG_ERROR, MD_LOG_WARN, MD_LOG_INFO, MD_LOG_DEBUG };

/*
 * Reads MEDUSA_LOG=error|warn|info|debug (default warn) and MEDUSA_LOG_FILE=path (default stderr) once, on first use.
 * Lines read "medusa DOMAIN: message", or "DOMAIN: message" where the domain is a command's name (medusa-...); a .c file
 * defines MD_LOG_DOMAIN before including this header. Bytes that a terminal would act upon are escaped (base/plain.h),
 * and a line is cut at about 1,000 bytes.
 */
void md_log(enum md_log_level level, const char *domain, const char *format, ...) __attribute__((format(printf, 3, 4)));
int md_log_enabled(enum md_log_level level);

#ifndef MD_LOG_DOMAIN
#define MD_LOG_DOMAIN "medusa"
#endif

#define md_error_log(...) md_log(MD_LOG_ERROR, MD_LOG_DOMAIN, __VA_ARGS__)
#define md_warn(...) md_log(MD_LOG_WARN, MD_LOG_DOMAIN, __VA_ARGS__)
#define md_info(...) md_log(MD_LOG_INFO, MD_LOG_DOMAIN, __VA_ARGS__)
#define md_debug(...)                                                                                                  \
	do {                                                                                                           \
		if (md_log_enabled(MD_LOG_DEBUG))                                                                      \
			md_log(MD_LOG_DEBUG, MD_LOG_DOMAIN, __VA_ARGS__);                                              \
	} while (0)

#endif
