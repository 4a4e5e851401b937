"""Reports: pages about runs that open in any browser, without a network."""
