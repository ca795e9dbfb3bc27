"""What this process says, and to whose line of code."""
