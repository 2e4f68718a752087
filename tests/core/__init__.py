"""The pool itself, seen from outside through its contract, and its parts."""
