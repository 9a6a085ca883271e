/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and libraries as they are loaded and unloaded, and their images. Lock not held unless said. */
#ifndef MD_CAPTURE_RECORD_IMAGES_H
#define MD_CAPTURE_RECORD_IMAGES_H

#include "capture/capture.h"

/* option: the name of a JIT option that changes the code (driver/jit_options.h), or NULL. */
void md_capture_module_loaded(CUmodule module, const void *image, const char *option);
void md_capture_module_loaded_file(CUmodule module, const char *path);
void md_capture_library_loaded(CUlibrary library, const void *image, const char *option);
void md_capture_library_loaded_file(CUlibrary library, const char *path, const char *option);
void md_capture_library_module(CUlibrary library, CUmodule module);
void md_capture_module_unloaded(CUmodule module);
void md_capture_library_unloaded(CUlibrary library);
void md_capture_context_destroyed(CUcontext context);                 /* all modules in it are gone */
void md_capture_primary_released(CUdevice device);                    /* the same, if nobody holds it any more */
uint32_t md_capture_image_of_module(CUmodule module) MD_CAPTURE_HELD; /* MD_NONE when its load was not seen */
uint32_t md_capture_image_of_library(CUlibrary library) MD_CAPTURE_HELD;
/* The option with which PTX was compiled when it was loaded, or NULL. */
const char *md_capture_image_option(uint32_t image) MD_CAPTURE_HELD;

#endif
