"""The torture table: situations that break resource pools, put to respool and to the pools others use.

``python -m benchmarks.torture`` runs each situation with each pool in a process of its own; a hang is a
failure.  A verdict comes from what was observed (counts, orders, identities), never from how long it took.
"""
