"""From seeds to mini-batches: the topology, in memory or mapped, and the samplers that expand seeds over it."""
