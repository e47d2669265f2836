"""The commands, a module and a function each: `gsure corrupt ...` on the command line is `gsure.corrupt(...)` in Python."""
