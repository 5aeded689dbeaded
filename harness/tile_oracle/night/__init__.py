"""Nights: sessions that come again and again, by a scheduler, and gate by what earlier ones left."""
