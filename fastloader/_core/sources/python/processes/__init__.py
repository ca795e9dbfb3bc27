"""What passes between the loop and its worker processes, and how those end."""
