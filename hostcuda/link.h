/* SPDX-License-Identifier: Apache-2.0 */
/* PTX texts that carry an image. */
#ifndef HOSTCUDA_LINK_H
#define HOSTCUDA_LINK_H

#include "hostcuda/device_state.h"

bool hc_ptx_is(const void *data);
/* The image that a PTX text carries (*image is the caller's to free). */
CUresult hc_ptx_image(const char *text, uint8_t **image, size_t *size);

#endif
