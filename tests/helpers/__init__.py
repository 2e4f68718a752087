"""Helpers of the test-suite, one subject a module.

``gates``: hooks that a test opens; ``threads``: threads that are joined with their
errors; ``sequencer``: one numbered order over several threads; ``resources``: a
factory that records what the pool does to its resources; ``recorder``: an observer
that remembers; ``invariants``: what holds for every pool.
"""
