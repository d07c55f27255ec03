"""Ways to load what people train on: what each gives, costs, and takes from the training."""
