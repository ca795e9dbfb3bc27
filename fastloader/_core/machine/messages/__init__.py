"""What a user is told while code of ours runs: who is asked for it, the log, and how far it is."""
