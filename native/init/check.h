/* Form of what arrives, before a byte of it is used. Pure: no system call, so that it is fuzzed hosted. */
#ifndef LEMNI_CHECK_H
#define LEMNI_CHECK_H

#include "protocol.h"

struct plan {
    const struct plan_op *ops;
    const char *arena;
    uint32_t count;
};

/*
 * Check the whole plan in ``bytes`` (8-byte aligned) of ``size`` bytes, come with ``fds`` descriptors. Returns FAULT_NONE and
 * fills ``plan``, or the fault, with ``*step`` the operation at fault (NOTHING: the header). After FAULT_NONE every offset,
 * length, index, flag and NUL of it is right, whoever wrote it.
 */
enum plan_fault check_plan(const void *bytes, uint32_t size, uint32_t fds, struct plan *plan, uint32_t *step);

struct run_strings {
    const struct run_limit *limits;
    const char *first;    /* cwd; the other strings follow it, each after the NUL of the one before */
    uint32_t limit_count, argc, envc;
};

/* The same for the payload of RUN (8-byte aligned). 0, or EPROTO. */
int check_run(const void *bytes, uint32_t size, struct run_strings *run);

#endif
