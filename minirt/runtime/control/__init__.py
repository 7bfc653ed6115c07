"""Between the coordinator, the template and the workers: connections and what is said over them."""
