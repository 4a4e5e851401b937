"""N-Triples of RDF: resources become nodes, predicates edge types or relations, numbers attributes of nodes."""
