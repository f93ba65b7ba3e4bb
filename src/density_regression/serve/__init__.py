"""The HTTP server, its page, and the alarm: what runs where torch does not."""
