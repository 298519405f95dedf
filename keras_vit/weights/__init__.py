"""Files of weights: reading them, knowing their layout, writing them."""
