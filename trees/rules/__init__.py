"""Rules and texts of trees."""
