/* Stream capture: what is forbidden while one is open, what ruins it, and graphs as lists of operations to replay. */

enum mode { GLOBAL, THREAD_LOCAL, RELAXED };

static void drop_capture(struct capture *c) {
    if (--c->holders == 0) free(c);
}

static void invalidate(struct capture *c) { c->invalid = true; }

static void drop_list(struct op *op) {
    for (struct op *next; op != NULL; op = next) {
        next = op->next;
        drop_op(op);
    }
}

/* End a capture: no stream is in it any more; what it has recorded stays for the caller to take. */
static void close_capture(struct capture *c) {
    for (struct stream *s = g.streams; s != NULL; s = s->all_next)
        if (s->capture == c) s->capture = NULL;
    for (struct capture **link = &g.captures; *link != NULL; link = &(*link)->next)
        if (*link == c) {
            *link = c->next;
            break;
        }
    c->open = false;
    drop_list(c->head);
    c->head = c->tail = NULL;
    drop_capture(c);
}

static void end_captures_of(struct context *context) {
    for (struct capture *c = g.captures, *next; c != NULL; c = next) {
        next = c->next;
        if (c->origin->context == context) close_capture(c);
    }
}

/* The check of calls that are "potentially unsafe" during a capture: 900, and the capture is ruined. A thread in relaxed
 * mode may do everything; one in thread-local mode minds its own captures only. */
static CUresult unsafe_call(void) {
    CUresult code = SUCCESS;
    if (me.capture_mode == RELAXED) return code;
    for (struct capture *c = g.captures; c != NULL; c = c->next) {
        bool own = pthread_equal(c->thread, pthread_self()) && c->mode != RELAXED;
        if (!own && !(me.capture_mode == GLOBAL && c->mode == GLOBAL)) continue;
        invalidate(c);
        count(C_violations, 1);
        code = CAPTURE_UNSUPPORTED;
    }
    return code;
}

/* The capture that work on a legacy stream would wait for, or NULL. */
static struct capture *implied(const struct stream *s) {
    if (s != &s->context->legacy) return NULL;
    for (struct capture *c = g.captures; c != NULL; c = c->next)
        if (c->origin->context == s->context && !c->origin->non_blocking) return c;
    return NULL;
}

/* Whether work may be given to a stream, as far as captures go. */
static CUresult capture_check(struct stream *s) {
    if (s->capture != NULL) return s->capture->invalid ? CAPTURE_INVALIDATED : SUCCESS;
    struct capture *c = implied(s);
    if (c == NULL) return SUCCESS;
    invalidate(c);
    count(C_violations, 1);
    return CAPTURE_IMPLICIT;
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    ENTER(cuThreadExchangeStreamCaptureMode);
    int old = me.capture_mode;
    NEED(*mode >= GLOBAL && *mode <= RELAXED, INVALID_VALUE);
    me.capture_mode = *mode;
    *mode = old;
    return leave(SUCCESS);
}

API CUresult cuStreamIsCapturing(CUstream handle, int *status) {
    ENTER(cuStreamIsCapturing);
    struct stream *s;
    TRY(find_stream(handle, &s));
    NEED(s->capture != NULL || implied(s) == NULL, CAPTURE_IMPLICIT); /* which harms nothing here */
    *status = s->capture == NULL ? 0 : s->capture->invalid ? 2 : 1;
    return leave(SUCCESS);
}

API CUresult cuStreamBeginCapture(CUstream handle, int mode) {
    ENTER(cuStreamBeginCapture);
    struct stream *s;
    TRY(find_stream(handle, &s));
    NEED(mode >= GLOBAL && mode <= RELAXED, INVALID_VALUE);
    NEED(s != &s->context->legacy, CAPTURE_UNSUPPORTED);
    NEED(s->capture == NULL, ILLEGAL_STATE);
    struct capture *c = calloc(1, sizeof *c);
    *c = (struct capture){.next = g.captures, .holders = 1, .mode = mode, .thread = pthread_self(), .origin = s, .open = true};
    g.captures = c;
    s->capture = c;
    return leave(SUCCESS);
}

API CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
    ENTER(cuStreamEndCapture);
    struct stream *s;
    *out = NULL;
    TRY(find_stream(handle, &s));
    struct capture *c = s->capture;
    NEED(c != NULL, ILLEGAL_STATE);
    NEED(c->origin == s, CAPTURE_UNMATCHED);
    NEED(c->mode == RELAXED || pthread_equal(c->thread, pthread_self()), CAPTURE_WRONG_THREAD);
    bool invalid = c->invalid;
    if (!invalid) {
        struct graph *graph = calloc(1, sizeof *graph);
        *graph = (struct graph){LIVE, g.graphs, c->head};
        c->head = c->tail = NULL;
        g.graphs = graph;
        count(C_graphs, 1);
        *out = graph;
    }
    close_capture(c);
    return leave(invalid ? CAPTURE_INVALIDATED : SUCCESS);
}

/* -- graphs ------------------------------------------------------------------------------------------------------ */

static struct op *clone_op(const struct op *op) {
    struct op *copy = malloc(sizeof *copy);
    *copy = *op;
    copy->next = NULL;
    if (copy->token != NULL) copy->token->holders++;
    return copy;
}

static bool good_graph(struct graph *graph) {
    if (graph != NULL && graph->life == LIVE) return true;
    count(C_bad_handles, 1);
    return false;
}

static void end_graph(struct graph *graph) {
    drop_list(graph->head);
    graph->head = NULL;
    graph->life = FREE;
    count(C_graphs, -1);
}

API CUresult cuGraphDestroy(CUgraph graph) {
    ENTER(cuGraphDestroy);
    NEED(good_graph(graph), INVALID_VALUE);
    end_graph(graph);
    return leave(SUCCESS);
}

API CUresult cuGraphExecDestroy(CUgraphExec graph) {
    ENTER(cuGraphExecDestroy);
    NEED(good_graph(graph), INVALID_VALUE);
    end_graph(graph);
    return leave(SUCCESS);
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    (void)flags;
    ENTER(cuGraphInstantiateWithFlags);
    NEED(good_graph(graph), INVALID_VALUE);
    struct graph *exec = calloc(1, sizeof *exec);
    *exec = (struct graph){LIVE, g.graphs, NULL};
    struct op **end = &exec->head;
    for (struct op *op = graph->head; op != NULL; op = op->next, end = &(*end)->next) *end = clone_op(op);
    g.graphs = exec;
    count(C_graphs, 1);
    *out = exec;
    return leave(SUCCESS);
}

API CUresult cuGraphLaunch(CUgraphExec graph, CUstream handle) {
    ENTER(cuGraphLaunch);
    struct stream *s;
    NEED(good_graph(graph), INVALID_VALUE);
    TRY(find_stream(handle, &s));
    TRY(capture_check(s));
    NEED(s->capture == NULL, NOT_SUPPORTED);
    for (struct op *kept = graph->head; kept != NULL; kept = kept->next) {
        struct op *op = push(s, kept->kind), work = *kept;
        work.next = NULL, work.seq = op->seq, work.submitted = op->submitted;
        if (work.token != NULL) work.token->holders++;
        *op = work;
    }
    return leave(SUCCESS);
}
