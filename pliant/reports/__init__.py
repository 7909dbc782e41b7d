"""What pliant tells about its work, gathered for people to read."""
