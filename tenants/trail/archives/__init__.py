"""Old events leave the database for signed files that still prove themselves, with the rest of their chain."""
