"""The bounds that this project holds itself to, and whether they are reached here."""
