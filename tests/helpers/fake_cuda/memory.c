/* Memory: device blocks, pinned host blocks, registered ranges, and copies that are done late and by pointer. */

#define PAGE 4096u

static size_t pages(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }
static bool is_pinned(const struct block *b) { return b->memory != DEVICE; }

/* The block that holds all of a range, or NULL. */
static struct block *holding(uintptr_t address, size_t size) {
    for (struct block *b = g.blocks; b != NULL; b = b->next)
        if (b->address <= address && address + size <= b->address + b->size) return b;
    return NULL;
}

static struct block *at(uintptr_t address, enum memory memory) {
    for (struct block *b = g.blocks; b != NULL; b = b->next)
        if (b->address == address && b->memory == memory) return b;
    return NULL;
}

static enum counter counter_of(enum memory memory) {
    return memory == DEVICE ? C_device_blocks : memory == HOST_ALLOCATED ? C_host_blocks : C_registered;
}

static void keep(enum memory memory, uintptr_t address, size_t size, unsigned flags, struct context *c) {
    struct block *b = calloc(1, sizeof *b);
    *b = (struct block){g.blocks, memory, address, size, flags, c, c->id};
    g.blocks = b;
    count(counter_of(memory), 1);
    if (!is_pinned(b)) return;
    count(C_pinned_bytes, (long)size);
    if (counters[C_pinned_bytes] > counters[C_pinned_peak]) counters[C_pinned_peak] = counters[C_pinned_bytes];
}

/* Forget a block; memory that came from here is unmapped, so that a later use of it faults. */
static void drop_block(struct block *b) {
    for (struct block **link = &g.blocks; *link != NULL; link = &(*link)->next)
        if (*link == b) {
            *link = b->next;
            break;
        }
    count(counter_of(b->memory), -1);
    if (is_pinned(b)) count(C_pinned_bytes, -(long)b->size);
    if (b->memory != REGISTERED) munmap((void *)b->address, pages(b->size));
    free(b);
}

static void drop_blocks_of(struct context *c) {
    for (struct block *b = g.blocks, *next; b != NULL; b = next) {
        next = b->next;
        if (b->context == c && b->context_id == c->id) drop_block(b);
    }
}

static bool over_limit(size_t size) {
    return g.pinned_limit != 0 && (size_t)counters[C_pinned_bytes] + size > g.pinned_limit;
}

static bool mapped(uintptr_t address, size_t size) {
    uintptr_t first = address & ~(uintptr_t)(PAGE - 1);
    return msync((void *)first, pages(address + size - first), MS_ASYNC) == 0;
}

/* -- allocating and freeing -------------------------------------------------------------------------------------- */

static CUresult allocate_host(void **out, size_t size, unsigned flags) {
    struct context *c;
    TRY(current(&c));
    TRY(unsafe_call());
    NEED(flags < 8, INVALID_VALUE);
    *out = NULL;
    NEED(size > 0, SUCCESS);
    NEED(!over_limit(size), OUT_OF_MEMORY);
    void *p = mmap(NULL, pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(p != MAP_FAILED, OUT_OF_MEMORY);
    keep(HOST_ALLOCATED, (uintptr_t)p, size, flags, c);
    *out = p;
    return leave(SUCCESS);
}

API CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags) {
    ENTER(cuMemHostAlloc);
    return allocate_host(out, size, flags);
}

API CUresult cuMemAllocHost(void **out, size_t size) {
    ENTER(cuMemAllocHost);
    return allocate_host(out, size, 0);
}

/* Freeing memory, also what nothing uses, waits for every stream of its context. Work that still uses it is a mistake of
 * the caller's that no document promises anything about: counted. */
static CUresult wait_to_free(uintptr_t address, enum memory memory, const char *what) {
    struct block *b = at(address, memory);
    struct context *c = b->context;
    uint64_t id = b->context_id;
    if (referenced(b)) count(C_free_pending, 1);
    if (!context_idle(c, id, g.seq)) count(C_free_waits, 1);
    CUresult code = wait_context_idle(c, id, what);
    return code != SUCCESS ? code : at(address, memory) != NULL ? SUCCESS : INVALID_VALUE;
}

API CUresult cuMemFreeHost(void *p) {
    ENTER(cuMemFreeHost);
    NEED(p != NULL, SUCCESS);
    if (at((uintptr_t)p, HOST_ALLOCATED) == NULL) {
        count(C_bad_frees, 1);
        return leave(INVALID_VALUE);
    }
    struct block *b = at((uintptr_t)p, HOST_ALLOCATED);
    TRY(judge(b->context, b->context_id));
    TRY(unsafe_call());
    TRY(wait_to_free((uintptr_t)p, HOST_ALLOCATED, "cuMemFreeHost"));
    drop_block(at((uintptr_t)p, HOST_ALLOCATED));
    return leave(SUCCESS);
}

API CUresult cuMemHostRegister(void *p, size_t size, unsigned flags) {
    ENTER(cuMemHostRegister);
    struct context *c;
    uintptr_t address = (uintptr_t)p;
    TRY(current(&c));
    TRY(unsafe_call());
    NEED(p != NULL && size > 0 && flags < 16, INVALID_VALUE);
    for (struct block *b = g.blocks; b != NULL; b = b->next)
        if (is_pinned(b) && address < b->address + b->size && b->address < address + size)
            return leave(b->memory == REGISTERED ? ALREADY_REGISTERED : INVALID_VALUE);
    NEED(mapped(address, size), INVALID_VALUE);
    NEED(!over_limit(size), OUT_OF_MEMORY);
    keep(REGISTERED, address, size, flags, c);
    return leave(SUCCESS);
}

API CUresult cuMemHostUnregister(void *p) {
    ENTER(cuMemHostUnregister);
    uintptr_t address = (uintptr_t)p;
    struct block *b = at(address, REGISTERED);
    if (b == NULL) {
        count(C_bad_frees, 1);
        struct block *around = holding(address, 1);
        return leave(around != NULL && is_pinned(around) ? INVALID_VALUE : NOT_REGISTERED);
    }
    TRY(judge(b->context, b->context_id));
    TRY(unsafe_call());
    if (!mapped(address, b->size)) count(C_unregister_unmapped, 1);
    TRY(wait_to_free(address, REGISTERED, "cuMemHostUnregister"));
    drop_block(at(address, REGISTERED));
    return leave(SUCCESS);
}

API CUresult cuMemHostGetFlags(unsigned *flags, void *p) {
    ENTER(cuMemHostGetFlags);
    struct block *b = holding((uintptr_t)p, 1);
    NEED(b != NULL && is_pinned(b), INVALID_VALUE);
    *flags = b->flags | 2;
    return leave(SUCCESS);
}

API CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *p, unsigned flags) {
    ENTER(cuMemHostGetDevicePointer);
    struct block *b = holding((uintptr_t)p, 1);
    NEED(flags == 0 && b != NULL && is_pinned(b), INVALID_VALUE);
    *out = (uintptr_t)p;
    return leave(SUCCESS);
}

API CUresult cuMemAlloc(CUdeviceptr *out, size_t size) {
    ENTER(cuMemAlloc);
    struct context *c;
    TRY(current(&c));
    TRY(unsafe_call());
    NEED(size > 0, INVALID_VALUE);
    void *p = mmap(NULL, pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(p != MAP_FAILED, OUT_OF_MEMORY);
    keep(DEVICE, (uintptr_t)p, size, 0, c);
    *out = (uintptr_t)p;
    return leave(SUCCESS);
}

API CUresult cuMemFree(CUdeviceptr p) {
    ENTER(cuMemFree);
    NEED(p != 0, SUCCESS);
    struct block *b = at((uintptr_t)p, DEVICE);
    if (b == NULL) count(C_bad_frees, 1);
    NEED(b != NULL, INVALID_VALUE);
    TRY(judge(b->context, b->context_id));
    TRY(unsafe_call());
    TRY(wait_to_free((uintptr_t)p, DEVICE, "cuMemFree"));
    drop_block(at((uintptr_t)p, DEVICE));
    return leave(SUCCESS);
}

API CUresult cuMemGetInfo(size_t *available, size_t *total) {
    ENTER(cuMemGetInfo);
    struct context *c;
    TRY(current(&c));
    *available = *total = (size_t)1 << 34;
    return leave(SUCCESS);
}

API CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr p) {
    ENTER(cuPointerGetAttribute);
    struct block *b = holding((uintptr_t)p, 1);
    NEED(b != NULL, INVALID_VALUE);
    if (attribute == 1) *(CUcontext *)out = b->context;
    else if (attribute == 2) *(unsigned *)out = is_pinned(b) ? 1 : 2;
    else if (attribute == 9) *(int *)out = b->context->device;
    else return leave(INVALID_VALUE);
    return leave(SUCCESS);
}

/* -- copying ----------------------------------------------------------------------------------------------------- */

/* Copy from or to memory that may have been unmapped since: the kernel tells, where a memcpy would crash. */
static bool careful_copy(void *to, const void *from, size_t size, bool reading) {
    static bool refused;
    struct iovec ours = {reading ? to : (void *)(uintptr_t)from, size}, theirs = {reading ? (void *)(uintptr_t)from : to, size};
    while (!refused && ours.iov_len > 0) {
        ssize_t n = reading ? process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0)
                            : process_vm_writev(getpid(), &ours, 1, &theirs, 1, 0);
        if (n <= 0 && (errno == EPERM || errno == ENOSYS)) refused = true;
        else if (n <= 0) return false;
        else {
            ours.iov_base = (char *)ours.iov_base + n, theirs.iov_base = (char *)theirs.iov_base + n;
            ours.iov_len -= (size_t)n, theirs.iov_len -= (size_t)n;
        }
    }
    if (refused && ours.iov_len > 0) memcpy(reading ? ours.iov_base : theirs.iov_base, reading ? theirs.iov_base : ours.iov_base, ours.iov_len);
    return true;
}

static CUresult execute_copy(struct op *op) {
    count(C_copies, 1);
    bool fine = holding((uintptr_t)op->to, op->size) != NULL || !op->device_to;
    if (op->device_from) fine = fine && holding((uintptr_t)op->from, op->size) != NULL;
    if (fine) fine = op->device_to ? careful_copy(op->to, op->snapshot != NULL ? op->snapshot : op->from, op->size, true)
                                   : careful_copy(op->to, op->from, op->size, false);
    if (fine) return SUCCESS;
    count(C_faults, 1);
    return ILLEGAL_ADDRESS;
}

static CUresult execute_fill(struct op *op) {
    if (holding((uintptr_t)op->to, op->size) != NULL) {
        memset(op->to, (int)op->value, op->size);
        return SUCCESS;
    }
    count(C_faults, 1);
    return ILLEGAL_ADDRESS;
}

/* Submit a copy. Which side is pageable decides: a pinned source is read when the copy is done, a pageable one at once;
 * with a pageable destination the call waits for the copy. */
static CUresult copy(uintptr_t to, uintptr_t from, size_t size, CUstream handle, bool wait, const char *what) {
    struct stream *s;
    TRY(find_stream(handle, &s));
    if (wait) TRY(unsafe_call());
    TRY(capture_check(s));
    NEED(size > 0, SUCCESS);
    struct block *target = holding(to, size), *source = holding(from, size);
    bool device_to = target != NULL && target->memory == DEVICE, device_from = source != NULL && source->memory == DEVICE;
    NEED(device_to || device_from, INVALID_VALUE);
    bool pageable = target == NULL || source == NULL;
    if (pageable) count(C_pageable, 1);
    if (s->capture != NULL && (wait || pageable)) {
        invalidate(s->capture);
        return leave(CAPTURE_UNSUPPORTED);
    }
    void *snapshot = NULL;
    if (source == NULL) {
        snapshot = malloc(size);
        if (snapshot == NULL || !careful_copy(snapshot, (void *)from, size, true)) {
            free(snapshot);
            return leave(INVALID_VALUE);
        }
    }
    struct op *op = push(s, OP_COPY);
    op->to = (void *)to, op->from = (void *)from, op->size = size, op->snapshot = snapshot;
    op->device_to = device_to, op->device_from = device_from;
    op->delay = g.copy_delay;
    return leave(wait || target == NULL ? wait_stream(s, what) : SUCCESS);
}

API CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream s) {
    ENTER(cuMemcpyHtoDAsync);
    return copy((uintptr_t)to, (uintptr_t)from, size, s, false, "cuMemcpyHtoDAsync");
}

API CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream s) {
    ENTER(cuMemcpyDtoHAsync);
    return copy((uintptr_t)to, (uintptr_t)from, size, s, false, "cuMemcpyDtoHAsync");
}

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
    ENTER(cuMemcpyAsync);
    return copy((uintptr_t)to, (uintptr_t)from, size, s, false, "cuMemcpyAsync");
}

API CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
    ENTER(cuMemcpyHtoD);
    return copy((uintptr_t)to, (uintptr_t)from, size, NULL, true, "cuMemcpyHtoD");
}

API CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
    ENTER(cuMemcpyDtoH);
    return copy((uintptr_t)to, (uintptr_t)from, size, NULL, true, "cuMemcpyDtoH");
}

static CUresult fill(CUdeviceptr to, unsigned char value, size_t size, CUstream handle, bool wait) {
    struct stream *s;
    TRY(find_stream(handle, &s));
    if (wait) TRY(unsafe_call());
    TRY(capture_check(s));
    NEED(size > 0, SUCCESS);
    struct block *target = holding((uintptr_t)to, size);
    NEED(target != NULL && target->memory == DEVICE, INVALID_VALUE);
    struct op *op = push(s, OP_FILL);
    op->to = (void *)(uintptr_t)to, op->size = size, op->value = value, op->delay = g.copy_delay;
    return leave(wait ? wait_stream(s, "cuMemsetD8") : SUCCESS);
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream s) {
    ENTER(cuMemsetD8Async);
    return fill(to, value, size, s, false);
}

API CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t size) {
    ENTER(cuMemsetD8);
    return fill(to, value, size, NULL, true);
}
