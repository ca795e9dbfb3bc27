"""What is behind the datasets: the formats in which pictures lie."""
