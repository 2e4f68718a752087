/* What all parts of the fake driver share: the driver's types and codes, its objects, and the state.
 *
 * All of it is one translation unit (libcuda.c includes the parts). One lock guards everything; a driver call holds it
 * from `enter` to `leave`, but for waiting, which polls without it. No thread of its own: work "on the device" is done
 * by whichever driver call comes next, which makes it late, deterministic, and indifferent to fork.
 */
#ifndef FAKE_H
#define FAKE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define API static
#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct graph *CUgraph;
typedef struct graph *CUgraphExec;

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
    CONTEXT_IS_DESTROYED = 709, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903, CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908
};

/* The driver functions there are, by base name; faults, latches and call counts go by these names. */
#define FUNCTIONS(X)                                                                                                   \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGet) X(cuDeviceGetCount)           \
    X(cuDeviceGetAttribute) X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetUuid) X(cuDevicePrimaryCtxRetain)      \
    X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset) X(cuDevicePrimaryCtxGetState) X(cuCtxCreate)               \
    X(cuCtxDestroy) X(cuCtxGetId) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent)         \
    X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuCtxGetStreamPriorityRange) X(cuEventCreate) X(cuEventRecord)             \
    X(cuEventRecordWithFlags) X(cuEventQuery) X(cuEventSynchronize) X(cuEventDestroy) X(cuEventElapsedTime)            \
    X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamQuery) X(cuStreamSynchronize)         \
    X(cuStreamWaitEvent) X(cuStreamWaitValue32) X(cuStreamGetCtx) X(cuStreamGetFlags) X(cuStreamIsCapturing)           \
    X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuThreadExchangeStreamCaptureMode) X(cuMemHostAlloc)               \
    X(cuMemAllocHost) X(cuMemFreeHost) X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemHostGetFlags)                \
    X(cuMemHostGetDevicePointer) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)  \
    X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyAsync) X(cuMemsetD8Async) X(cuMemsetD8) X(cuPointerGetAttribute)         \
    X(cuLaunchHostFunc) X(cuGraphDestroy) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphExecDestroy)

#define AS_ENUM(name) F_##name,
enum function { FUNCTIONS(AS_ENUM) N_FUNCTIONS };
#define AS_NAME(name) #name,
static const char *const function_names[] = {FUNCTIONS(AS_NAME)};

/* What tests read by name: what there is now, and what has happened since the last reset. */
#define COUNTERS(X)                                                                                                    \
    X(events) X(streams) X(contexts) X(device_blocks) X(host_blocks) X(registered) X(graphs) X(queued) X(pinned_bytes) \
    X(pinned_peak) X(events_made) X(copies) X(pageable) X(faults) X(stale) X(crashes) X(bad_handles) X(bad_frees)      \
    X(free_pending) X(free_waits) X(unregister_unmapped) X(violations) X(fork_calls) X(late_calls) X(injected)

#define AS_COUNTER(name) C_##name,
enum counter { COUNTERS(AS_COUNTER) N_COUNTERS };
static const char *const counter_names[] = {COUNTERS(AS_NAME)};
static long counters[N_COUNTERS];
static long calls[N_FUNCTIONS];

/* Objects live in slots that are never returned to the system, so that any handle ever given out can be looked at. */
enum life { FREE, LIVE, DEAD /* its context has gone: a tombstone, never given out again */ };

struct token { /* one record of an event; the event, its place in a queue, and those who wait for it hold it */
    int holders;
    bool done;
    uint64_t at; /* when it was done */
    struct capture *capture; /* recorded in this capture: no record of a normal stream */
};

enum kind { OP_COPY, OP_FILL, OP_RECORD, OP_WAIT, OP_WAIT_VALUE };

struct op { /* one piece of work of a stream */
    struct op *next;
    enum kind kind;
    uint64_t seq, submitted, delay;
    void *to, *from; /* copy, fill; for a copy from pageable memory `from` is `snapshot` */
    size_t size;
    bool device_to, device_from;
    unsigned value, flags;
    void *snapshot;
    struct token *token;
};

struct stream {
    enum life life;
    struct stream *next_free;
    struct context *context;
    uint64_t context_id;
    bool special;    /* a context's own, legacy or per-thread: not one that somebody created */
    bool draining;   /* destroyed with work left, which is still done */
    bool non_blocking, held;
    long credits; /* operations that may still run although the stream is held */
    struct op *head, *tail;
    uint64_t finished; /* when its last operation was done */
    struct capture *capture;
    struct stream *all_next; /* of every slot ever made */
};

struct event {
    enum life life;
    struct event *next_free, *all_next;
    struct context *context;
    uint64_t context_id;
    unsigned flags;
    struct token *token;
};

struct context {
    bool live, primary;
    struct context *next_free, *all_next;
    uint64_t id;
    CUdevice device;
    int sticky;
    struct stream legacy, per_thread;
};

enum memory { DEVICE, HOST_ALLOCATED, REGISTERED };

struct block {
    struct block *next;
    enum memory memory;
    uintptr_t address;
    size_t size;
    unsigned flags;
    struct context *context;
    uint64_t context_id;
};

struct capture {
    struct capture *next; /* of those in progress */
    int holders;          /* tokens that carry its mark, and itself while in progress */
    int mode;
    pthread_t thread;
    struct stream *origin;
    bool open, invalid;
    struct op *head, *tail;
};

struct graph {
    enum life life;
    struct graph *next;
    struct op *head;
};

#define DEVICES 16
#define DEPTH 64

struct entry { struct context *context; uint64_t id; };
struct thread { uint64_t epoch; int depth; struct entry stack[DEPTH]; int capture_mode; };
static __thread struct thread me;

static struct {
    pthread_mutex_t lock;
    bool initialized, forked, late;
    int devices, version, init_code;
    uint64_t epoch, next_id, seq;
    struct context primary[DEVICES];
    int retained[DEVICES];
    struct context *contexts, *free_contexts;
    struct stream *streams, *free_streams;
    struct event *events, *free_events;
    struct block *blocks;
    struct capture *captures;
    struct graph *graphs;
    size_t pinned_limit;
    bool hold;
    long credits;
    uint64_t copy_delay;
    uint64_t hang_seconds;
} g = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoch = 1, .next_id = 1, .devices = 2, .version = 13000, .hang_seconds = 20};

static void count(enum counter which, long by) { __atomic_add_fetch(&counters[which], by, __ATOMIC_RELAXED); }
static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* calls.c */
static CUresult enter(enum function f);
static CUresult leave(CUresult code);
static void pause_unlocked(const char *what, uint64_t since);
/* contexts.c */
static CUresult current(struct context **out);
static CUresult judge(struct context *context, uint64_t id);
/* queue.c */
static void run_due(void);
static void drop_queue(struct stream *s);
static CUresult find_stream(CUstream handle, struct stream **out);
static CUresult wait_context_idle(struct context *c, uint64_t id, const char *what);
static void drop_token(struct token *t);
static struct op *push(struct stream *s, enum kind kind);
static bool referenced(const struct block *b);
/* memory.c */
static void drop_blocks_of(struct context *c);
static CUresult execute_copy(struct op *op);
static CUresult execute_fill(struct op *op);
/* capture.c */
static CUresult unsafe_call(void);
static CUresult capture_check(struct stream *s);
static void drop_capture(struct capture *c);
static void invalidate(struct capture *c);
static void close_capture(struct capture *c);
static void end_captures_of(struct context *c);

#endif
