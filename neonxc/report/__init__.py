"""Report that explains a whole clustering on one HTML page: clusters, relevance, rules and reliability."""
