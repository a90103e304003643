"""Operations of a cluster whose database is out of reach, carried out by its api-server."""
