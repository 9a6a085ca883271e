/* SPDX-License-Identifier: Apache-2.0 */
/* Images that modules are made of. */
#ifndef HOSTCUDA_MODULE_IMAGE_H
#define HOSTCUDA_MODULE_IMAGE_H

#include "hostcuda/device_state.h"

CUresult hc_image_parse(const void *data, struct hc_image **image);
CUresult hc_image_parse_file(const char *path, struct hc_image **image);
CUresult hc_image_load(struct hc_image *image); /* maps the code if it isn't yet; takes the state lock */
struct hc_image *hc_image_ref(struct hc_image *image);
void hc_image_unref(struct hc_image *image);

#endif
