"""Pictures that a dataset gives as they are encoded."""
