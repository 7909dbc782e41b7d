"""What every part of pliant shares: errors, positions in the user's source, options, the stream of
events, and the views of that stream (counters, logs, warnings). Imports nothing else of pliant."""
