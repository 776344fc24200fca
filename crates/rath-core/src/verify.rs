//! Checks records against each other: hashes, links, order, time. Knows nothing of how they are stored.
