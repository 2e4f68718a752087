/* A stand-in for libcuda.so.1: enough of a CUDA driver for the event pool, pinned buffers and cuda.core, without a GPU.
 *
 * It follows what real drivers were seen to do (reused handles, ids that never repeat, 709 and 719, capture rules,
 * frees that wait for the device) and shows what they hide: copies are done late and by pointer, so that memory that is
 * reused or freed too early gives wrong bytes or a counted fault; live objects, stale handles and calls are counted; every
 * function can be made to fail at its n-th call, or to stand still until a test lets it go on.
 *
 * Built by tests/helpers/cuda_driver.py as one translation unit.
 */
#include "fake.h"

#include "calls.c"
#include "contexts.c"
#include "queue.c"
#include "events.c"
#include "memory.c"
#include "capture.c"
#include "control.c"
#include "symbols.c"
