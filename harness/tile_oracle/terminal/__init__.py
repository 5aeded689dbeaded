"""Text for people: messages, tables, help, progress."""
