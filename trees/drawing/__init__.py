"""Drawings and text exports of trees."""
