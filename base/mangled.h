/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of a C++ function's parameters by its mangled name: a number, an address, or an object by value. */
#ifndef MD_BASE_MANGLED_H
#define MD_BASE_MANGLED_H

#include <stdbool.h>
#include <stdint.h>

enum md_mangled_kind {
	MD_MANGLED_OBJECT, /* a class, union or enumeration by value, or a type whose kind the name does not tell */
	MD_MANGLED_NUMBER, /* every bit is value: arithmetic types, CUDA's vectors of them, halves */
	MD_MANGLED_ADDRESS,
};

struct md_mangled_param {
	uint8_t kind; /* md_mangled_kind */
	uint8_t size; /* bytes of a number or an address; 0: not known */
};

/*
 * Reads a name mangled by the Itanium C++ ABI (section 5.1) or by nvcc. True: the function has `count` parameters, and
 * params says what each is. False: it has another number of parameters, it is not the name of a C++ function, or this
 * reader does not know how it is encoded. Names may come from a file: any text is safe.
 */
bool md_mangled_params(const char *name, struct md_mangled_param *params, uint32_t count);

#endif
