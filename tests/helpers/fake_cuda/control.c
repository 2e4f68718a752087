/* What tests call: modes of the device, latches, faults, limits, counts, and starting afresh. None of it is counted. */

static void lock(void) { pthread_mutex_lock(&g.lock); }
static void unlock(void) { pthread_mutex_unlock(&g.lock); }

static int index_of(const char *name) {
    int f = function_by_name(name);
    if (f >= 0) return f;
    fprintf(stderr, "fake libcuda: no such function: %s\n", name);
    abort();
}

EXPORT long fake_count(const char *name) {
    for (int i = 0; i < N_COUNTERS; i++)
        if (strcmp(counter_names[i], name) == 0) return __atomic_load_n(&counters[i], __ATOMIC_RELAXED);
    return -1;
}

/* The names of all counters, one after the other; NULL at the end. */
EXPORT const char *fake_counter(int i) { return i >= 0 && i < N_COUNTERS ? counter_names[i] : NULL; }
EXPORT const char *fake_function(int i) { return i >= 0 && i < N_FUNCTIONS ? function_names[i] : NULL; }
EXPORT long fake_calls(const char *name) { return __atomic_load_n(&calls[index_of(name)], __ATOMIC_RELAXED); }

/* Nothing runs on the device any more until it's stepped or let go; with a stream, on that stream. */
EXPORT void fake_hold(struct stream *s, int on) {
    lock();
    if (s == NULL) {
        g.hold = on;
        g.credits = 0;
    } else {
        s->held = on;
        s->credits = 0;
    }
    if (!on) run_due();
    unlock();
}

/* Let the next n operations run, of one stream or of any. */
EXPORT void fake_step(struct stream *s, long n) {
    lock();
    *(s == NULL ? &g.credits : &s->credits) += n;
    run_due();
    unlock();
}

EXPORT void fake_run(void) {
    lock();
    run_due();
    unlock();
}

EXPORT void fake_copy_delay(unsigned long long nanoseconds) {
    lock();
    g.copy_delay = nanoseconds;
    unlock();
}

EXPORT void fake_limit_pinned(size_t bytes) {
    lock();
    g.pinned_limit = bytes;
    unlock();
}

EXPORT int fake_fail(const char *name, long nth, int code, long times) {
    int f = index_of(name);
    lock();
    bool room = n_rules < RULES;
    if (room) rules[n_rules++] = (struct rule){f, nth, times, code, 0};
    unlock();
    return room ? 0 : -1;
}

EXPORT void fake_clear_faults(void) {
    lock();
    n_rules = 0;
    unlock();
}

EXPORT void fake_latch(const char *name, int closed) {
    __atomic_store_n(&latches[index_of(name)].closed, closed != 0, __ATOMIC_RELEASE);
}

EXPORT long fake_inside(const char *name) {
    return __atomic_load_n(&latches[index_of(name)].inside, __ATOMIC_ACQUIRE);
}

/* Break the context of this id, for good: what a kernel does that reads where it may not. */
EXPORT int fake_break(unsigned long long id, int code) {
    int found = -1;
    lock();
    for (int i = 0; i < DEVICES; i++)
        if (g.primary[i].live && g.primary[i].id == id) fail_context(&g.primary[i], code), found = 0;
    for (struct context *c = g.contexts; c != NULL; c = c->all_next)
        if (c->live && c->id == id) fail_context(c, code), found = 0;
    unlock();
    return found;
}

/* From now on each call counts as late: an interpreter that ends says so, after which nobody should call. */
EXPORT void fake_late(void) { g.late = true; }

/* Open all latches and let the device run: for the end of a test, whatever state it left. */
EXPORT void fake_settle(void) {
    for (int f = 0; f < N_FUNCTIONS; f++) __atomic_store_n(&latches[f].closed, false, __ATOMIC_RELEASE);
    lock();
    n_rules = 0;
    g.hold = false;
    g.credits = 0;
    g.pinned_limit = 0;
    g.copy_delay = 0;
    for (struct stream *s = g.streams; s != NULL; s = s->all_next) s->held = false, s->credits = 0;
    run_due();
    unlock();
}

/* As in a new process, but that ids go on: no contexts, no memory, empty stacks on all threads, all counts zero. */
EXPORT void fake_reset(void) {
    fake_settle();
    lock();
    while (g.captures != NULL) close_capture(g.captures);
    for (int i = 0; i < DEVICES; i++) {
        if (g.primary[i].live) end_context(&g.primary[i]);
        g.retained[i] = 0;
    }
    for (struct context *c = g.contexts; c != NULL; c = c->all_next)
        if (c->live) end_context(c);
    for (struct graph *graph = g.graphs; graph != NULL; graph = graph->next)
        if (graph->life == LIVE) end_graph(graph);
    g.epoch++;
    memset(counters, 0, sizeof counters);
    memset(calls, 0, sizeof calls);
    unlock();
}
