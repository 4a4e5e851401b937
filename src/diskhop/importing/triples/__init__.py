"""Knowledge graphs as text: head, relation and tail on each line."""
