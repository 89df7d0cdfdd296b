"""Where an archive keeps its tables: one module for each table format."""
