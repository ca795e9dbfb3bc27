"""Where encoded pictures lie."""
