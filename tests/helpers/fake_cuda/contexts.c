/* Devices and contexts: ids that never repeat, handles that do, a stack for each thread, and the end of a context. */

API CUresult cuInit(unsigned flags) {
    ENTER(cuInit);
    NEED(flags == 0, INVALID_VALUE);
    NEED(g.init_code == 0, g.init_code);
    NEED(g.devices > 0, NO_DEVICE);
    g.initialized = true;
    return leave(SUCCESS);
}

API CUresult cuDriverGetVersion(int *version) {
    ENTER(cuDriverGetVersion);
    *version = g.version;
    return leave(SUCCESS);
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(cuDeviceGet);
    NEED(ordinal >= 0 && ordinal < g.devices, INVALID_DEVICE);
    *device = ordinal;
    return leave(SUCCESS);
}

API CUresult cuDeviceGetCount(int *n) {
    ENTER(cuDeviceGetCount);
    *n = g.devices;
    return leave(SUCCESS);
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER(cuDeviceGetAttribute);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    *value = attribute == 75 ? 9 : 0; /* compute capability 9.0; everything else is absent */
    return leave(SUCCESS);
}

API CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    ENTER(cuDeviceGetName);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return leave(SUCCESS);
}

API CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    *bytes = (size_t)1 << 34;
    return leave(SUCCESS);
}

API CUresult cuDeviceGetUuid(char *uuid, CUdevice device) {
    ENTER(cuDeviceGetUuid);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    memset(uuid, 0, 16);
    uuid[15] = (char)device;
    return leave(SUCCESS);
}

/* -- life and death ---------------------------------------------------------------------------------------------- */

/* The two streams that every context has. (Threads share the "per-thread" one: enough for tests of handle 2.) */
static void begin_special(struct stream *s, struct context *c) {
    if (!s->special) {
        s->all_next = g.streams;
        g.streams = s;
    }
    *s = (struct stream){.life = LIVE, .special = true, .context = c, .context_id = c->id, .all_next = s->all_next};
}

static void begin_context(struct context *c, CUdevice device, bool primary) {
    c->live = true;
    c->primary = primary;
    c->id = g.next_id++;
    c->device = device;
    c->sticky = 0;
    begin_special(&c->legacy, c);
    begin_special(&c->per_thread, c);
    count(C_contexts, 1);
}

/* Everything of the context goes with it: streams and events become tombstones, memory is unmapped. */
static void end_context(struct context *c) {
    end_captures_of(c);
    for (struct stream *s = g.streams; s != NULL; s = s->all_next)
        if (s->context == c && s->context_id == c->id) {
            drop_queue(s);
            if (s->life == LIVE && !s->special) count(C_streams, -1);
            if (s->life == LIVE) s->life = DEAD;
        }
    for (struct event *e = g.events; e != NULL; e = e->all_next)
        if (e->life == LIVE && e->context == c) {
            drop_token(e->token);
            e->token = NULL;
            e->life = DEAD;
            count(C_events, -1);
        }
    drop_blocks_of(c);
    c->live = false;
    count(C_contexts, -1);
    if (!c->primary) {
        c->next_free = g.free_contexts;
        g.free_contexts = c;
    }
}

/* Whether a handle with the id that it had is alive and well: SUCCESS, 709, or its sticky error. */
static CUresult judge(struct context *c, uint64_t id) {
    if (!c->live || c->id != id) return CONTEXT_IS_DESTROYED;
    return c->sticky;
}

/* A stack holds pointers; a primary context that was reset and retained again is the same one to it. */
static CUresult current(struct context **out) {
    if (me.depth == 0) return INVALID_CONTEXT;
    struct entry top = me.stack[me.depth - 1];
    *out = top.context;
    return judge(top.context, top.context->primary ? top.context->id : top.id);
}

/* Whether this address was ever a context's: asking a real driver about anything else is a crash. */
static bool known_context(struct context *c) {
    for (int i = 0; i < DEVICES; i++)
        if (c == &g.primary[i]) return g.primary[i].id != 0;
    for (struct context *other = g.contexts; other != NULL; other = other->all_next)
        if (other == c) return true;
    count(C_bad_handles, 1);
    count(C_crashes, 1);
    return false;
}

static CUresult push_current(struct context *c) {
    if (me.depth == DEPTH) return OUT_OF_MEMORY;
    me.stack[me.depth++] = (struct entry){c, c->id};
    return SUCCESS;
}

API CUresult cuCtxCreate(CUcontext *out, unsigned flags, CUdevice device) {
    (void)flags;
    ENTER(cuCtxCreate);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    NEED(me.depth < DEPTH, OUT_OF_MEMORY);
    struct context *c = g.free_contexts;
    if (c != NULL) {
        g.free_contexts = c->next_free; /* last in, first out: the handle that was destroyed last comes back */
    } else {
        c = calloc(1, sizeof *c);
        c->all_next = g.contexts;
        g.contexts = c;
    }
    begin_context(c, device, false);
    *out = c;
    return leave(push_current(c));
}

API CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned flags, CUdevice device) {
    (void)params;
    return cuCtxCreate(out, flags, device);
}

API CUresult cuCtxDestroy(CUcontext c) {
    ENTER(cuCtxDestroy);
    NEED(c != NULL && known_context(c), INVALID_CONTEXT);
    NEED(c->live, CONTEXT_IS_DESTROYED);
    NEED(!c->primary, INVALID_CONTEXT);
    if (me.depth > 0 && me.stack[me.depth - 1].context == c) me.depth--; /* of this thread only */
    end_context(c);
    return leave(SUCCESS);
}

API CUresult cuCtxGetId(CUcontext c, unsigned long long *id) {
    ENTER(cuCtxGetId);
    if (c == NULL) {
        TRY(current(&c));
    } else {
        NEED(known_context(c), INVALID_CONTEXT);
        TRY(judge(c, c->id));
    }
    *id = c->id;
    return leave(SUCCESS);
}

API CUresult cuCtxGetCurrent(CUcontext *out) {
    ENTER(cuCtxGetCurrent);
    *out = me.depth > 0 ? me.stack[me.depth - 1].context : NULL; /* dead ones, too */
    return leave(SUCCESS);
}

API CUresult cuCtxSetCurrent(CUcontext c) {
    ENTER(cuCtxSetCurrent);
    if (c == NULL) {
        if (me.depth > 0) me.depth--;
        return leave(SUCCESS);
    }
    NEED(known_context(c), INVALID_CONTEXT);
    NEED(c->live, CONTEXT_IS_DESTROYED);
    if (me.depth > 0) me.depth--;
    return leave(push_current(c));
}

API CUresult cuCtxPushCurrent(CUcontext c) {
    ENTER(cuCtxPushCurrent);
    NEED(c != NULL && known_context(c), INVALID_CONTEXT);
    NEED(c->live, CONTEXT_IS_DESTROYED);
    return leave(push_current(c));
}

API CUresult cuCtxPopCurrent(CUcontext *out) {
    ENTER(cuCtxPopCurrent);
    NEED(me.depth > 0, INVALID_CONTEXT);
    me.depth--;
    if (out != NULL) *out = me.stack[me.depth].context;
    return leave(SUCCESS);
}

API CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER(cuCtxGetDevice);
    struct context *c;
    TRY(current(&c));
    *device = c->device;
    return leave(SUCCESS);
}

API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext c) {
    if (c == NULL) return cuCtxGetDevice(device);
    ENTER(cuCtxGetDevice);
    NEED(known_context(c), INVALID_CONTEXT);
    TRY(judge(c, c->id));
    *device = c->device;
    return leave(SUCCESS);
}

API CUresult cuCtxSynchronize_v2(CUcontext c) {
    ENTER(cuCtxSynchronize);
    if (c == NULL) TRY(current(&c));
    NEED(known_context(c), INVALID_CONTEXT);
    TRY(judge(c, c->id));
    TRY(unsafe_call());
    return leave(wait_context_idle(c, c->id, "cuCtxSynchronize"));
}

API CUresult cuCtxSynchronize(void) { return cuCtxSynchronize_v2(NULL); }

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(cuCtxGetStreamPriorityRange);
    struct context *c;
    TRY(current(&c));
    if (least != NULL) *least = 0;
    if (greatest != NULL) *greatest = -5;
    return leave(SUCCESS);
}

/* -- primary contexts: one handle a device for ever, a new id each time it comes to life ------------------------- */

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    struct context *c = &g.primary[device];
    if (!c->live) begin_context(c, device, true);
    g.retained[device]++;
    *out = c;
    return leave(SUCCESS);
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    NEED(g.retained[device] > 0, INVALID_CONTEXT);
    if (--g.retained[device] == 0 && g.primary[device].live) end_context(&g.primary[device]);
    return leave(SUCCESS);
}

API CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    ENTER(cuDevicePrimaryCtxReset);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    g.retained[device] = 0;
    if (g.primary[device].live) end_context(&g.primary[device]);
    return leave(SUCCESS);
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER(cuDevicePrimaryCtxGetState);
    NEED(device >= 0 && device < g.devices, INVALID_DEVICE);
    *flags = 0;
    *active = g.primary[device].live;
    return leave(SUCCESS);
}
