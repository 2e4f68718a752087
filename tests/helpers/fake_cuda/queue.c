/* Streams: a queue of operations each, nothing of which is done when it is submitted, and the rules of what may run. */

static void drop_token(struct token *t) {
    if (t == NULL || --t->holders > 0) return;
    if (t->capture != NULL) drop_capture(t->capture);
    free(t);
}

static void drop_op(struct op *op) {
    drop_token(op->token);
    free(op->snapshot);
    free(op);
}

/* A destroyed stream's slot is free for the next one as soon as its last work is done. */
static void retire(struct stream *s) {
    s->draining = false;
    s->next_free = g.free_streams;
    g.free_streams = s;
}

static void drop_queue(struct stream *s) {
    while (s->head != NULL) {
        struct op *op = s->head;
        s->head = op->next;
        drop_op(op);
        count(C_queued, -1);
    }
    s->tail = NULL;
    if (s->draining) retire(s);
}

/* Make an operation: at the stream's end, or, while it captures, at the capture's. Waiting orders of a capture are not kept. */
static struct op *push(struct stream *s, enum kind kind) {
    struct op *op = calloc(1, sizeof *op);
    op->kind = kind;
    op->seq = ++g.seq;
    op->submitted = now();
    struct op **head = s->capture != NULL ? &s->capture->head : &s->head;
    struct op **tail = s->capture != NULL ? &s->capture->tail : &s->tail;
    if (*head == NULL) *head = op;
    else (*tail)->next = op;
    *tail = op;
    if (s->capture == NULL) count(C_queued, 1);
    return op;
}

/* Whether `other` must have done what was submitted before `op` when `op`, of stream `s`, runs: the legacy stream's rule. */
static bool ordered(const struct stream *s, const struct stream *other) {
    if (other == s || other->context != s->context || other->context_id != s->context_id) return false;
    const struct stream *legacy = &s->context->legacy;
    return (s == legacy && !other->non_blocking) || (other == legacy && !s->non_blocking);
}

/* Whether the first operation of a stream may run now, and when it is done if it does. */
static bool may_run(struct stream *s, uint64_t *done_at) {
    struct op *op = s->head;
    if ((g.hold || s->held) && s->credits <= 0 && !(g.hold && !s->held && g.credits > 0)) return false;
    uint64_t start = op->submitted > s->finished ? op->submitted : s->finished;
    for (struct stream *other = g.streams; other != NULL; other = other->all_next) {
        if (!ordered(s, other)) continue;
        if (other->head != NULL && other->head->seq < op->seq) return false;
        if (other->finished > start) start = other->finished;
    }
    if (op->kind == OP_WAIT && op->token != NULL) {
        if (!op->token->done) return false;
        if (op->token->at > start) start = op->token->at;
    }
    if (op->kind == OP_WAIT_VALUE) {
        unsigned there = *(volatile unsigned *)op->from;
        bool met = op->flags == 0   ? (int)(there - op->value) >= 0
                   : op->flags == 1 ? there == op->value
                                    : (there & op->value) != 0;
        if (!met) return false;
        start = now();
    }
    *done_at = start + op->delay;
    return *done_at <= now();
}

static void fail_context(struct context *c, int code) {
    c->sticky = code;
    for (struct stream *s = g.streams; s != NULL; s = s->all_next)
        if (s->context == c && s->context_id == c->id) drop_queue(s);
}

static void run_first(struct stream *s, uint64_t done_at) {
    struct op *op = s->head;
    if (g.hold || s->held) {
        if (s->credits > 0) s->credits--;
        else g.credits--;
    }
    CUresult code = SUCCESS;
    if (op->kind == OP_COPY) code = execute_copy(op);
    if (op->kind == OP_FILL) code = execute_fill(op);
    if (code != SUCCESS) {
        fail_context(s->context, code);
        return;
    }
    if (op->kind == OP_RECORD) {
        op->token->done = true;
        op->token->at = done_at;
    }
    s->finished = done_at;
    s->head = op->next;
    if (s->head == NULL) s->tail = NULL;
    count(C_queued, -1);
    drop_op(op);
    if (s->head == NULL && s->draining) retire(s);
}

/* Do what is due, oldest first, until nothing more may run. */
static void run_due(void) {
    while (counters[C_queued] > 0) {
        struct stream *first = NULL;
        uint64_t done_at = 0, at;
        for (struct stream *s = g.streams; s != NULL; s = s->all_next)
            if (s->head != NULL && (first == NULL || s->head->seq < first->head->seq) && may_run(s, &at)) {
                first = s;
                done_at = at;
            }
        if (first == NULL) return;
        run_first(first, done_at);
    }
}

/* Whether work that is still queued, or kept in a graph, reads or writes this memory. */
static bool referenced(const struct block *b) {
    for (struct stream *s = g.streams; s != NULL; s = s->all_next)
        for (struct op *op = s->head; op != NULL; op = op->next) {
            uintptr_t to = (uintptr_t)op->to, from = (uintptr_t)op->from;
            if (op->kind != OP_COPY && op->kind != OP_FILL) continue;
            if (to < b->address + b->size && b->address < to + op->size) return true;
            if (op->snapshot == NULL && op->from != NULL && from < b->address + b->size && b->address < from + op->size)
                return true;
        }
    return false;
}

/* -- handles ----------------------------------------------------------------------------------------------------- */

/* What a handle of something of a dead context gets. After a primary context was reset and retained, drivers crash on it. */
static CUresult stale(struct context *c, uint64_t id) {
    count(C_stale, 1);
    if (c->live && c->id != id) count(C_crashes, 1);
    return CONTEXT_IS_DESTROYED;
}

static CUresult find_stream(CUstream handle, struct stream **out) {
    if ((uintptr_t)handle <= 2) {
        struct context *c;
        CUresult code = current(&c);
        if (code == SUCCESS) *out = (uintptr_t)handle == 2 ? &c->per_thread : &c->legacy;
        return code;
    }
    for (struct stream *s = g.streams; s != NULL; s = s->all_next)
        if (s == handle) {
            if (s->life == DEAD) return stale(s->context, s->context_id);
            if (s->life == FREE) break;
            *out = s;
            return judge(s->context, s->context_id);
        }
    count(C_bad_handles, 1);
    return INVALID_HANDLE;
}

/* Whether everything submitted to a stream up to `seq` is done; the legacy stream answers for the blocking ones, too. */
static bool done_up_to(struct stream *s, uint64_t seq) {
    if (s->head != NULL && s->head->seq <= seq) return false;
    for (struct stream *other = g.streams; other != NULL; other = other->all_next)
        if (s == &s->context->legacy && ordered(s, other) && other->head != NULL && other->head->seq <= seq)
            return false;
    return true;
}

/* Wait, without the lock, until a stream has done what it has been given so far. */
static CUresult wait_stream(struct stream *s, const char *what) {
    struct context *c = s->context;
    uint64_t id = s->context_id, seq = g.seq, since = now();
    for (;;) {
        CUresult code = judge(c, id);
        if (code != SUCCESS) return code;
        if (done_up_to(s, seq)) return SUCCESS;
        pthread_mutex_unlock(&g.lock);
        pause_unlocked(what, since);
        pthread_mutex_lock(&g.lock);
        run_due();
    }
}

static bool context_idle(struct context *c, uint64_t id, uint64_t seq) {
    for (struct stream *s = g.streams; s != NULL; s = s->all_next)
        if (s->context == c && s->context_id == id && s->head != NULL && s->head->seq <= seq) return false;
    return true;
}

/* The same for all streams of a context: what freeing pinned memory does on real drivers. */
static CUresult wait_context_idle(struct context *c, uint64_t id, const char *what) {
    uint64_t seq = g.seq, since = now();
    for (;;) {
        CUresult code = judge(c, id);
        if (code != SUCCESS) return code;
        if (context_idle(c, id, seq)) return SUCCESS;
        pthread_mutex_unlock(&g.lock);
        pause_unlocked(what, since);
        pthread_mutex_lock(&g.lock);
        run_due();
    }
}

/* -- the driver's functions -------------------------------------------------------------------------------------- */

static CUresult create_stream(CUstream *out, unsigned flags) {
    struct context *c;
    TRY(current(&c));
    NEED(flags <= 1, INVALID_VALUE);
    struct stream *s = g.free_streams;
    if (s != NULL) {
        g.free_streams = s->next_free;
    } else {
        s = calloc(1, sizeof *s);
        s->all_next = g.streams;
        g.streams = s;
    }
    *s = (struct stream){.life = LIVE, .context = c, .context_id = c->id, .non_blocking = flags & 1, .all_next = s->all_next};
    count(C_streams, 1);
    *out = s;
    return leave(SUCCESS);
}

API CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    ENTER(cuStreamCreate);
    return create_stream(out, flags);
}

API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    (void)priority;
    ENTER(cuStreamCreateWithPriority);
    return create_stream(out, flags);
}

API CUresult cuStreamDestroy(CUstream handle) {
    ENTER(cuStreamDestroy);
    struct stream *s;
    NEED((uintptr_t)handle > 2, INVALID_HANDLE);
    TRY(find_stream(handle, &s));
    if (s->capture != NULL && s->capture->origin == s) close_capture(s->capture);
    else if (s->capture != NULL) invalidate(s->capture);
    s->capture = NULL;
    s->life = FREE;
    count(C_streams, -1);
    if (s->head == NULL) retire(s);
    else s->draining = true;
    return leave(SUCCESS);
}

/* Find a stream that is to be looked at from outside, which ruins a capture. */
static CUresult find_to_look(CUstream handle, struct stream **found) {
    CUresult code = find_stream(handle, found);
    if (code == SUCCESS) code = unsafe_call();
    if (code == SUCCESS) code = capture_check(*found);
    if (code == SUCCESS && (*found)->capture != NULL) {
        invalidate((*found)->capture);
        code = CAPTURE_UNSUPPORTED;
    }
    return code;
}

API CUresult cuStreamQuery(CUstream handle) {
    ENTER(cuStreamQuery);
    struct stream *s;
    TRY(find_to_look(handle, &s));
    return leave(done_up_to(s, g.seq) ? SUCCESS : NOT_READY);
}

API CUresult cuStreamSynchronize(CUstream handle) {
    ENTER(cuStreamSynchronize);
    struct stream *s;
    TRY(find_to_look(handle, &s));
    return leave(wait_stream(s, "cuStreamSynchronize"));
}

API CUresult cuStreamGetCtx(CUstream handle, CUcontext *out) {
    ENTER(cuStreamGetCtx);
    struct stream *s;
    TRY(find_stream(handle, &s));
    *out = s->context;
    return leave(SUCCESS);
}

API CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *out, void **green) {
    *green = NULL;
    return cuStreamGetCtx(handle, out);
}

API CUresult cuStreamGetFlags(CUstream handle, unsigned *flags) {
    ENTER(cuStreamGetFlags);
    struct stream *s;
    TRY(find_stream(handle, &s));
    *flags = s->non_blocking;
    return leave(SUCCESS);
}

/* The stream stands still until the word at this address fits: how tests on a GPU hold a stream. */
API CUresult cuStreamWaitValue32(CUstream handle, CUdeviceptr address, unsigned value, unsigned flags) {
    ENTER(cuStreamWaitValue32);
    struct stream *s;
    TRY(find_stream(handle, &s));
    TRY(capture_check(s));
    NEED((flags & 3) <= 2, NOT_SUPPORTED);
    struct op *op = push(s, OP_WAIT_VALUE);
    op->from = (void *)(uintptr_t)address;
    op->value = value;
    op->flags = flags & 3;
    return leave(SUCCESS);
}

/* Counted, to show that nobody calls it; not performed. */
API CUresult cuLaunchHostFunc(CUstream handle, void (*function)(void *), void *data) {
    (void)handle, (void)function, (void)data;
    ENTER(cuLaunchHostFunc);
    return leave(NOT_SUPPORTED);
}
