"""Independent answers to check the product against: naive on purpose, sharing no code with what they check."""
