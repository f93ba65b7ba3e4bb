"""Monocular depth (`tab:depth-estimation`): trained indoors, tested indoors, on attacked images, and outdoors."""
