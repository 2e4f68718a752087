/* Events: each record makes a fresh token, which the event, its place in the queue, and everybody who waits share. */

static CUresult find_event(struct event *e) {
    if (e == NULL || e->life == FREE) {
        count(C_bad_handles, 1);
        return INVALID_HANDLE;
    }
    if (e->life == DEAD) return stale(e->context, e->context_id);
    return judge(e->context, e->context_id);
}

API CUresult cuEventCreate(CUevent *out, unsigned flags) {
    ENTER(cuEventCreate);
    struct context *c;
    TRY(current(&c));
    NEED(flags < 8 && (!(flags & 4) || (flags & 2)), INVALID_VALUE); /* interprocess ones can't be timed */
    struct event *e = g.free_events;
    if (e != NULL) {
        g.free_events = e->next_free;
    } else {
        e = calloc(1, sizeof *e);
        e->all_next = g.events;
        g.events = e;
    }
    *e = (struct event){.life = LIVE, .context = c, .context_id = c->id, .flags = flags, .all_next = e->all_next};
    count(C_events, 1);
    count(C_events_made, 1);
    *out = e;
    return leave(SUCCESS);
}

API CUresult cuEventDestroy(CUevent e) {
    ENTER(cuEventDestroy);
    TRY(find_event(e));
    drop_token(e->token); /* pending work keeps its own */
    e->token = NULL;
    e->life = FREE;
    e->next_free = g.free_events;
    g.free_events = e;
    count(C_events, -1);
    return leave(SUCCESS);
}

static CUresult record(CUevent e, CUstream handle) {
    struct stream *s;
    TRY(find_event(e));
    TRY(find_stream(handle, &s));
    NEED(e->context == s->context, INVALID_HANDLE);
    TRY(capture_check(s));
    struct token *token = calloc(1, sizeof *token);
    token->holders = 1;
    if (s->capture != NULL) {
        token->capture = s->capture;
        s->capture->holders++;
    } else {
        push(s, OP_RECORD)->token = token;
        token->holders++;
    }
    drop_token(e->token);
    e->token = token;
    return leave(SUCCESS);
}

API CUresult cuEventRecord(CUevent e, CUstream handle) {
    ENTER(cuEventRecord);
    return record(e, handle);
}

API CUresult cuEventRecordWithFlags(CUevent e, CUstream handle, unsigned flags) {
    ENTER(cuEventRecordWithFlags);
    NEED(flags <= 1, INVALID_VALUE);
    return record(e, handle);
}

/* A query of an event recorded in a capture: ruins that capture, relaxed or not, and means nothing after it has ended. */
static CUresult captured(struct token *token) {
    if (!token->capture->open) return INVALID_VALUE;
    count(C_violations, 1);
    invalidate(token->capture);
    return CAPTURED_EVENT;
}

API CUresult cuEventQuery(CUevent e) {
    ENTER(cuEventQuery);
    TRY(find_event(e));
    TRY(unsafe_call());
    NEED(e->token != NULL, SUCCESS);
    if (e->token->capture != NULL) return leave(captured(e->token));
    return leave(e->token->done ? SUCCESS : NOT_READY);
}

API CUresult cuEventSynchronize(CUevent e) {
    ENTER(cuEventSynchronize);
    TRY(find_event(e));
    TRY(unsafe_call());
    NEED(e->token != NULL, SUCCESS);
    if (e->token->capture != NULL) return leave(captured(e->token));
    struct token *token = e->token;
    struct context *c = e->context;
    uint64_t id = e->context_id, since = now();
    token->holders++;
    CUresult code;
    while ((code = judge(c, id)) == SUCCESS && !token->done) {
        pthread_mutex_unlock(&g.lock);
        pause_unlocked("cuEventSynchronize", since);
        pthread_mutex_lock(&g.lock);
        run_due();
    }
    drop_token(token);
    return leave(code);
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    ENTER(cuEventElapsedTime);
    TRY(find_event(start));
    TRY(find_event(end));
    NEED(start->context == end->context, INVALID_HANDLE);
    NEED(!(start->flags & 2) && !(end->flags & 2), INVALID_HANDLE);
    NEED(start->token != NULL && end->token != NULL, INVALID_HANDLE);
    NEED(start->token->capture == NULL && end->token->capture == NULL, INVALID_HANDLE);
    NEED(start->token->done && end->token->done, NOT_READY);
    *milliseconds = (float)((double)(int64_t)(end->token->at - start->token->at) / 1e6);
    return leave(SUCCESS);
}

API CUresult cuStreamWaitEvent(CUstream handle, CUevent e, unsigned flags) {
    ENTER(cuStreamWaitEvent);
    struct stream *s;
    NEED(flags <= 1, INVALID_VALUE);
    TRY(find_event(e));
    TRY(find_stream(handle, &s));
    TRY(capture_check(s));
    NEED(e->token != NULL, SUCCESS); /* never recorded: nothing to wait for */
    if (e->token->capture != NULL) {
        NEED(e->token->capture->open, INVALID_VALUE);
        NEED(s->capture == NULL || s->capture == e->token->capture, CAPTURE_ISOLATION);
        s->capture = e->token->capture; /* the stream joins the capture */
        return leave(SUCCESS);
    }
    if (s->capture != NULL) {
        count(C_violations, 1);
        invalidate(s->capture);
        return leave(CAPTURE_ISOLATION);
    }
    struct op *op = push(s, OP_WAIT);
    op->token = e->token; /* what it stands for now; a later record doesn't change this */
    op->token->holders++;
    return leave(SUCCESS);
}
