"""What this project holds itself to, and whether it is reached here."""
